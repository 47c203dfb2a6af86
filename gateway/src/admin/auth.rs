// SPDX-License-Identifier: Apache-2.0
//! Who may do what on the admin listener: roles, tokens, and the file that holds their hashes.
//!
//! A token is 256 random bits, so a plain SHA-256 of it cannot be turned back and costs nothing to check. Tokens are
//! compared by their hashes, in the same time whatever they are. Must not know what a path does: it is told the role.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::problem::{Kind, Problem};

/// Set to `1` to take a token file that other users of the machine may read, such as a mounted Kubernetes secret.
pub const READABLE: &str = "SLUICE_ADMIN_TOKENS_READABLE";

/// Begins every token, so that people and scanners know one when they see it.
const PREFIX: &str = "slu_";

/// Largest token file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// What one may do; each includes those before it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// See everything that is shown.
    Viewer,
    /// Give orders, and change how models scale and wait.
    Operator,
    /// Change everything, including which programs run.
    Admin,
}

impl Role {
    /// The word in token files and documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }

    fn parse(word: &str) -> Option<Role> {
        [Role::Viewer, Role::Operator, Role::Admin].into_iter().find(|role| role.as_str() == word)
    }
}

/// Whoever sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Name of the token; empty without tokens.
    pub name: Arc<str>,
    /// What it may do.
    pub role: Role,
}

impl Caller {
    /// Whoever reaches a loopback listener without tokens. It is no admin: another user of the machine could else have
    /// Sluice run any program.
    fn anybody() -> Caller {
        Caller { name: "".into(), role: Role::Operator }
    }

    /// Refuses what the role does not include.
    pub(super) fn require(&self, role: Role) -> Result<(), Problem> {
        if self.role >= role {
            return Ok(());
        }
        let who = match &*self.name {
            "" => format!(
                "without tokens everybody is {}; name a file of tokens with `adminTokens`",
                self.role.as_str()
            ),
            name => format!("the token {name:?} is {}", self.role.as_str()),
        };
        Err(Problem::new(Kind::Forbidden, format!("this needs the role {}; {who}", role.as_str())))
    }
}

/// Why a token file is not taken.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// Not there, or not readable to Sluice.
    #[error("{file}: cannot be read: {cause}", file = .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// From the operating system.
        cause: std::io::Error,
    },
    /// Others may write it, or read it.
    #[error(
        "{file}: other users of this machine may {what} it (mode {mode:04o}); run `chmod 600 {file}`{unless}",
        file = .file.display()
    )]
    Open {
        /// The file.
        file: PathBuf,
        /// `read` or `change`.
        what: &'static str,
        /// Its permission bits.
        mode: u32,
        /// How to have it taken all the same, if that is possible.
        unless: &'static str,
    },
    /// A line is not `name role sha256`.
    #[error("{file}:{line}: {what}; a line is `name role sha256`, as `sluice token create` prints it", file = .file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// No token, so nobody could do anything.
    #[error("{file}: holds no token; `sluice token create NAME --role admin` prints a line for it", file = .file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// Nothing is random.
    #[error("the operating system gives no random bytes: {0}")]
    Random(getrandom::Error),
}

/// One line of the file.
#[derive(Clone, Debug)]
struct Entry {
    caller: Caller,
    hash: [u8; 32],
}

/// The tokens that are known.
#[derive(Clone, Debug, Default)]
pub struct Tokens(Vec<Entry>);

impl Tokens {
    /// Reads a token file. `readable` takes one that others may read.
    ///
    /// # Errors
    /// It cannot be read, is not well kept, or is not understood.
    pub fn read(file: &Path, readable: bool) -> Result<Tokens, TokensError> {
        let unreadable = |cause| TokensError::Unreadable { file: file.to_owned(), cause };
        let opened = std::fs::File::open(file).map_err(unreadable)?;
        let mode = opened.metadata().map_err(unreadable)?.mode() & 0o7777;
        let open = |what, unless| TokensError::Open { file: file.to_owned(), what, mode, unless };
        if mode & 0o022 != 0 {
            return Err(open("change", ""));
        }
        if mode & 0o004 != 0 && !readable {
            return Err(open("read", ", or set SLUICE_ADMIN_TOKENS_READABLE=1"));
        }
        let mut text = String::new();
        opened.take(MAX_BYTES).read_to_string(&mut text).map_err(unreadable)?;
        Self::parse(&text, file)
    }

    fn parse(text: &str, file: &Path) -> Result<Tokens, TokensError> {
        let mut tokens = Vec::new();
        let mut names = BTreeSet::new();
        for (index, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.first().is_none_or(|word| word.starts_with('#')) {
                continue;
            }
            let wrong = |what: &str| TokensError::Line {
                file: file.to_owned(),
                line: index + 1,
                what: what.to_owned(),
            };
            let [name, role, hash] = words[..] else { return Err(wrong("not three words")) };
            let role = Role::parse(role).ok_or_else(|| wrong("the role is not viewer, operator or admin"))?;
            let hash =
                unhex(hash).ok_or_else(|| wrong("the third word is not a SHA-256 in 64 hex digits"))?;
            if !names.insert(name) {
                return Err(wrong("the name is there already"));
            }
            tokens.push(Entry { caller: Caller { name: name.into(), role }, hash });
        }
        match tokens.is_empty() {
            true => Err(TokensError::Empty { file: file.to_owned() }),
            false => Ok(Tokens(tokens)),
        }
    }

    fn find(&self, token: &str) -> Option<Caller> {
        let hash = Sha256::digest(token.as_bytes());
        // Every line is compared whole, so that time tells nothing.
        self.0.iter().fold(None, |found, entry| {
            let same = bool::from(entry.hash.ct_eq(hash.as_slice()));
            if same { Some(entry.caller.clone()) } else { found }
        })
    }
}

/// A fresh token and the line that makes it known. The token is shown once and kept nowhere.
///
/// # Errors
/// The operating system has no random bytes.
pub fn create(name: &str, role: Role) -> Result<(String, String), TokensError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(TokensError::Random)?;
    let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
    let hash = hex(&Sha256::digest(token.as_bytes()));
    Ok((token, format!("{name} {} {hash}", role.as_str())))
}

/// How requests are told apart; cheap to clone, and shared with whoever renews the tokens.
#[derive(Clone, Default)]
pub struct Access(Option<Arc<ArcSwap<Tokens>>>);

impl Access {
    /// Whoever reaches the listener may give orders.
    pub fn open() -> Access {
        Access(None)
    }

    /// Every request needs one of these.
    pub fn with(tokens: Tokens) -> Access {
        Access(Some(Arc::new(ArcSwap::from_pointee(tokens))))
    }

    /// Whether a token is needed.
    pub fn is_closed(&self) -> bool {
        self.0.is_some()
    }

    /// Takes these in place of the former ones. A listener that is open stays so.
    pub fn renew(&self, tokens: Tokens) {
        if let Some(held) = &self.0 {
            held.store(Arc::new(tokens));
        }
    }

    /// Who sent this.
    pub(super) fn identify(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        let Some(tokens) = &self.0 else { return Ok(Caller::anybody()) };
        let refused = |why: &str| Problem::new(Kind::Unauthenticated, why);
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (given.next(), given.next()) else {
            return Err(refused(
                "send `Authorization: Bearer …` with a token; the command line takes SLUICE_TOKEN",
            ));
        };
        let bearer = value.to_str().ok().and_then(|value| value.split_once(' '));
        let token = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let (_, token) = token.ok_or_else(|| refused("only `Authorization: Bearer …` is understood"))?;
        tokens.load().find(token.trim()).ok_or_else(|| refused("this token is not known, or no longer"))
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_closed() { "Access(tokens)" } else { "Access(open)" })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |of: u8| char::from(of).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    fn bearer(token: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap())])
    }

    #[test]
    fn a_created_token_is_known_by_its_line_alone() {
        let (token, line) = create("ci", Role::Operator).unwrap();
        assert!(token.len() > 40 && !line.contains(&token), "{token} {line}");
        let kept = file(&format!("# who\n\n{line}\n"), 0o600);
        let access = Access::with(Tokens::read(kept.path(), false).unwrap());
        let caller = access.identify(&bearer(&token)).unwrap();
        assert_eq!((&*caller.name, caller.role), ("ci", Role::Operator));
        assert!(caller.require(Role::Viewer).is_ok());
        let refused = caller.require(Role::Admin).unwrap_err();
        assert!(refused.detail.contains("needs the role admin; the token \"ci\" is operator"), "{refused:?}");
        let (other, line) = create("other", Role::Viewer).unwrap();
        assert!(access.identify(&bearer(&other)).is_err());
        access.renew(Tokens::parse(&line, Path::new("x")).unwrap());
        assert!(access.identify(&bearer(&other)).is_ok() && access.identify(&bearer(&token)).is_err());
    }

    #[test]
    fn only_one_bearer_token_counts() {
        let (token, line) = create("a", Role::Admin).unwrap();
        let access = Access::with(Tokens::parse(&line, Path::new("x")).unwrap());
        assert!(access.identify(&HeaderMap::new()).is_err());
        let mut two = bearer(&token);
        two.append(header::AUTHORIZATION, "Bearer x".parse().unwrap());
        assert!(access.identify(&two).is_err());
        let basic =
            HeaderMap::from_iter([(header::AUTHORIZATION, format!("Basic {token}").parse().unwrap())]);
        assert!(access.identify(&basic).is_err());
    }

    #[test]
    fn whoever_reaches_an_open_listener_is_operator() {
        let caller = Access::open().identify(&HeaderMap::new()).unwrap();
        assert_eq!(caller.role, Role::Operator);
        assert!(caller.require(Role::Admin).unwrap_err().detail.contains("adminTokens"));
    }

    #[test]
    fn a_file_that_others_may_read_or_change_is_refused_unless_told() {
        let (_, line) = create("a", Role::Admin).unwrap();
        assert!(Tokens::read(file(&line, 0o640).path(), false).is_ok());
        let refused = Tokens::read(file(&line, 0o644).path(), false).unwrap_err().to_string();
        assert!(refused.contains("may read it (mode 0644)") && refused.contains(READABLE), "{refused}");
        assert!(Tokens::read(file(&line, 0o644).path(), true).is_ok());
        let refused = Tokens::read(file(&line, 0o620).path(), true).unwrap_err().to_string();
        assert!(refused.contains("may change it"), "{refused}");
    }

    #[test]
    fn a_line_that_is_not_understood_is_named() {
        let hash = "0".repeat(64);
        for (text, part) in [
            ("a admin", ":1: not three words"),
            ("# x\na root 00", ":2: the role"),
            ("a admin zz", ":1: the third word"),
            ("# nothing\n", "holds no token"),
        ] {
            let error = Tokens::parse(text, Path::new("tokens")).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        let twice = format!("a admin {hash}\na viewer {hash}\n");
        assert!(Tokens::parse(&twice, Path::new("t")).unwrap_err().to_string().contains(":2: the name"));
    }
}
