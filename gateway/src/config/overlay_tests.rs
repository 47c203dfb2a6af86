// SPDX-License-Identifier: Apache-2.0
//! Changes over a file: what they come to, what is kept, what is shown.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use serde_json::json as doc;

use super::super::{Report, Source};
use super::*;

const FILE: &str = "\
models:
  - name: a
    command: [sh, '${PORT}']
    maxReplicas: 3
    queue: {length: 7}
    env: {TOKEN: hunter2}
  - name: b
    command: [sh, '${PORT}']
";

fn source(text: &str) -> Source {
    Source { origin: "/x/s.yaml".to_owned(), text: text.into() }
}

fn patched(
    text: &str,
    overlay: &Overlay,
    model: &str,
    patch: &Json,
) -> Result<(Overlay, super::super::Loaded), Report> {
    let now = source(text).load(overlay).unwrap();
    let new = overlay.patched(model, &now.written[model], patch);
    source(text).load(&new).map(|loaded| (new, loaded))
}

fn shown(loaded: &super::super::Loaded, model: &str) -> Shown {
    loaded.written[model].shown(&model.into(), &loaded.settings)
}

#[test]
fn a_patch_changes_one_model_and_is_shown_with_its_origin() {
    let before = source(FILE).load(&Overlay::default()).unwrap();
    let patch = doc!({"idleAfter": "9s", "queue": {"length": null, "bytes": "64Mi"}, "minReplicas": 1});
    let (overlay, loaded) = patched(FILE, &Overlay::default(), "a", &patch).unwrap();
    assert_eq!(overlay.keys("a"), ["idleAfter", "minReplicas", "queue.bytes", "queue.length"]);
    let spec = &loaded.settings.plan.fleet.models["a"];
    assert_eq!((spec.scale.min_replicas, spec.scale.idle_after.as_millis()), (1, 9_000));
    assert_eq!(spec.generation, before.settings.plan.fleet.models["a"].generation);
    let own = &loaded.settings.models["a"];
    assert_eq!((own.queue_length, own.queue_bytes), (1000, 64 << 20), "null takes the file's away");
    assert_eq!(loaded.settings.plan.fleet.models["b"], before.settings.plan.fleet.models["b"]);
    let told = shown(&loaded, "a");
    assert_eq!((&told.settings["idleAfter"], told.origins["idleAfter"]), (&doc!("9s"), "api"));
    assert_eq!((&told.settings["queue"]["length"], told.origins["queue.length"]), (&doc!(1000), "api"));
    assert_eq!((&told.settings["maxReplicas"], told.origins["maxReplicas"]), (&doc!(3), "file"));
    assert_eq!((&told.settings["window"], told.origins["window"]), (&doc!("60s"), "default"));
    assert_eq!((&told.settings["scaleTarget"], told.origins["scaleTarget"]), (&doc!(100), "default"));
    assert_eq!(told.settings["env"], doc!({"TOKEN": "***"}));
    assert!(!format!("{loaded:?} {overlay:?}").contains("hunter2"));
}

#[test]
fn annotations_and_what_follows_from_them_are_told_apart() {
    let text =
        "models:\n  - name: a\n    command: [sh]\n    annotations: {autoscaling.knative.dev/window: 30s}\n";
    let loaded = source(text).load(&Overlay::default()).unwrap();
    let told = shown(&loaded, "a");
    assert_eq!((&told.settings["window"], told.origins["window"]), (&doc!("30s"), "annotation"));
    assert_eq!((&told.settings["idleAfter"], told.origins["idleAfter"]), (&doc!("5m"), "default"));
}

#[test]
fn what_is_set_back_to_the_files_word_is_no_change() {
    let none = Overlay::default();
    let (overlay, _) = patched(FILE, &none, "a", &doc!({"maxReplicas": 5, "window": "9s"})).unwrap();
    let (overlay, _) = patched(FILE, &overlay, "a", &doc!({"maxReplicas": 3})).unwrap();
    assert_eq!(overlay.keys("a"), ["window"]);
    let (overlay, _) = patched(FILE, &overlay, "a", &doc!({"window": null})).unwrap();
    assert_eq!(overlay, none);
}

#[test]
fn the_version_changes_with_the_settings_only() {
    let version = |text: &str, overlay: &Overlay| source(text).load(overlay).unwrap().written["a"].version();
    let (overlay, loaded) = patched(FILE, &Overlay::default(), "a", &doc!({"window": "9s"})).unwrap();
    let first = version(FILE, &Overlay::default());
    assert_ne!(first, loaded.written["a"].version());
    assert_eq!(version(FILE, &overlay.without("a")), first);
    assert_eq!(version(&FILE.replace("name: b", "name: c"), &Overlay::default()), first);
}

#[test]
fn mistakes_are_told_in_the_words_of_the_file() {
    for (patch, code, part) in [
        (doc!({"minReplica": 1}), "SLU0010", "unknown key `minReplica`"),
        (doc!({"minReplicas": 9}), "SLU0023", "`minReplicas` is 9 and `maxReplicas`"),
        (doc!({"idleAfter": 30}), "SLU0014", "`idleAfter` cannot be `30`"),
        (doc!({"queue": 5}), "SLU0013", "must be a table of keys"),
        (doc!({"command": null}), "SLU0012", "a model needs"),
        (doc!({"env": {"A": [1]}}), "SLU0013", "single value"),
        (doc!({"name": "b"}), "SLU0021", "the model `b`"),
    ] {
        let report = patched(FILE, &Overlay::default(), "a", &patch).unwrap_err();
        let found = report.problems.iter().any(|p| p.code.id() == code && p.message.contains(part));
        assert!(found, "{patch}: {report}");
        assert!(!report.to_string().contains("hunter2"), "{report}");
    }
}

#[test]
fn an_edit_of_the_same_key_wins_and_other_edits_leave_the_change() {
    let (overlay, _) =
        patched(FILE, &Overlay::default(), "a", &doc!({"maxReplicas": 5, "window": "9s"})).unwrap();
    let (loaded, kept, dropped) =
        source(&FILE.replace("length: 7", "length: 8")).load_over(&overlay).unwrap();
    assert_eq!((kept, dropped), (overlay.clone(), vec![]));
    assert_eq!(loaded.settings.plan.fleet.models["a"].scale.max_replicas, 5);

    let (loaded, kept, dropped) =
        source(&FILE.replace("maxReplicas: 3", "maxReplicas: 4")).load_over(&overlay).unwrap();
    assert_eq!(loaded.settings.plan.fleet.models["a"].scale.max_replicas, 4);
    assert_eq!(kept.keys("a"), ["window"]);
    assert_eq!(
        (dropped[0].key.as_str(), dropped[0].why),
        ("maxReplicas", "the file says something else than before")
    );

    let (_, kept, dropped) = source("models: []\n").load_over(&overlay).unwrap();
    assert!(kept.is_empty() && dropped.len() == 2, "{dropped:?}");
}

#[test]
fn a_change_that_the_file_makes_invalid_goes_and_those_of_other_models_stay() {
    let (overlay, _) = patched(FILE, &Overlay::default(), "a", &doc!({"minReplicas": 3})).unwrap();
    let (overlay, _) = patched(FILE, &overlay, "b", &doc!({"window": "9s"})).unwrap();
    let (loaded, kept, dropped) =
        source(&FILE.replace("maxReplicas: 3", "maxReplicas: 2")).load_over(&overlay).unwrap();
    assert_eq!((kept.keys("a"), kept.keys("b")), (vec![], vec!["window".to_owned()]));
    assert_eq!(dropped[0].why, "it is not valid with the file any more");
    assert_eq!(loaded.settings.plan.fleet.models["b"].scale.window.as_millis(), 9_000);
    assert!(source("models: {}\n").load_over(&overlay).is_err(), "the file's own mistakes are refused");
}

fn tree() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![(0u64..3).prop_map(Json::from), Just(doc!("x")), Just(doc!([1, {"k": 2}]))];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop::collection::btree_map("[a-c]", inner, 0..3)
            .prop_map(|map| Json::Object(map.into_iter().collect()))
    })
}

proptest! {
    /// Whatever the file and what is wanted: the entries over the file come to what is wanted.
    #[test]
    fn entries_over_the_file_are_what_is_wanted(
        file in prop::collection::btree_map("[a-c]", tree(), 0..3),
        wanted in prop::collection::btree_map("[a-c]", tree(), 0..3),
    ) {
        let (file, wanted) = (Json::Object(file.into_iter().collect()), Json::Object(wanted.into_iter().collect()));
        let at = Place::default();
        let mut entries = Vec::new();
        if wanted.as_object().is_some_and(|map| !map.is_empty()) {
            compare(Some(&file), Some(&wanted), &mut Vec::new(), &mut entries);
            let mut node = made(&file, at);
            for entry in &entries {
                node = with(&node, &entry.path, entry.value.as_ref(), at);
            }
            prop_assert_eq!(json(&node), wanted);
        }
    }
}
