// SPDX-License-Identifier: Apache-2.0
//! The API's contract as an OpenAPI 3.1 document, from the types that the handlers answer with.
//!
//! Owns the list of operations in [`operations`]; `docs/openapi.json` is this document, and tests compare both, hold the
//! list against the router and walk through every documented answer. Must not know how an answer comes about.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::response::Response;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::auth::Role;
use super::operations::operations;
use super::problem::{self, BASE, Kind, Problem};
use super::routes::typed;

/// Adds a type to the document's components.
type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// One method at one path.
pub(super) struct Operation {
    pub method: &'static str,
    pub path: &'static str,
    pub id: &'static str,
    pub summary: &'static str,
    /// Least role; `None` is free.
    pub role: Option<Role>,
    pub parameters: Vec<Parameter>,
    /// Content type and shape of the request's body.
    pub body: Option<(&'static str, SchemaOf)>,
    pub answers: Vec<Success>,
    pub problems: Vec<Kind>,
}

/// A parameter of the path, the query or the head.
pub(super) struct Parameter {
    pub place: &'static str,
    pub name: &'static str,
    pub schema: Value,
    pub about: &'static str,
}

/// An answer that is no problem.
pub(super) struct Success {
    pub status: u16,
    pub about: &'static str,
    pub content: &'static str,
    pub schema: SchemaOf,
}

/// The schema of `T`.
pub(super) fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// Any text.
pub(super) fn text(_: &mut SchemaGenerator) -> Schema {
    Schema::try_from(json!({"type": "string"})).unwrap_or_default()
}

impl Operation {
    pub fn new(
        method: &'static str,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Operation {
        let role = Some(if method == "get" { Role::Viewer } else { Role::Operator });
        let (parameters, answers) = (Vec::new(), Vec::new());
        let problems = vec![
            Kind::Unauthenticated,
            Kind::Forbidden,
            Kind::ForeignOrigin,
            Kind::Internal,
            Kind::Overloaded,
            Kind::Timeout,
        ];
        Operation { method, path, id, summary, role, parameters, body: None, answers, problems }
    }

    /// Outside of every limit and role.
    pub fn free(mut self) -> Self {
        self.role = None;
        self.problems.clear();
        self
    }

    pub fn query(self, name: &'static str, schema: Value, about: &'static str) -> Self {
        self.parameter("query", name, schema, about)
    }

    pub fn parameter(
        mut self,
        place: &'static str,
        name: &'static str,
        schema: Value,
        about: &'static str,
    ) -> Self {
        self.parameters.push(Parameter { place, name, schema, about });
        self
    }

    pub fn takes<T: JsonSchema>(mut self, content: &'static str) -> Self {
        self.body = Some((content, of::<T>));
        self
    }

    pub fn json<T: JsonSchema>(self, status: u16, about: &'static str) -> Self {
        self.answers(status, "application/json", of::<T>, about)
    }

    pub fn answers(
        mut self,
        status: u16,
        content: &'static str,
        schema: SchemaOf,
        about: &'static str,
    ) -> Self {
        self.answers.push(Success { status, about, content, schema });
        self
    }

    pub fn problems(mut self, kinds: &[Kind]) -> Self {
        self.problems.extend(kinds);
        self
    }
}

/// `GET /openapi.json`.
pub(super) async fn serve() -> Response {
    typed("application/json", Body::from(text_of_document()))
}

/// The document as it is committed, served and printed.
pub fn text_of_document() -> String {
    // A JSON value always has a text.
    serde_json::to_string_pretty(&document()).unwrap_or_default() + "\n"
}

/// The document.
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for operation in operations() {
        let item = described(&operation, &mut generator);
        paths.entry(operation.path).or_default().insert(operation.method.to_owned(), item);
    }
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Sluice admin API",
            "version": "v1",
            "summary": "See and steer a running Sluice.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:8081"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {
                "type": "http", "scheme": "bearer",
                "description": "Needed as soon as `adminTokens` is configured; `x-role` is the least role.",
            }},
        },
    })
}

fn described(operation: &Operation, generator: &mut SchemaGenerator) -> Value {
    let mut item = Map::new();
    item.insert("operationId".into(), operation.id.into());
    item.insert("summary".into(), operation.summary.into());
    match operation.role {
        Some(role) => item.insert("x-role".into(), role.as_str().into()),
        None => item.insert("security".into(), json!([])),
    };
    if !operation.parameters.is_empty() {
        item.insert("parameters".into(), operation.parameters.iter().map(parameter).collect());
    }
    if let Some((content, schema)) = operation.body {
        let body = json!({"required": true, "content": {content: {"schema": schema(generator)}}});
        item.insert("requestBody".into(), body);
    }
    item.insert("responses".into(), responses(operation, generator));
    Value::Object(item)
}

fn parameter(parameter: &Parameter) -> Value {
    json!({
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.place == "path",
        "description": parameter.about,
        "schema": parameter.schema,
    })
}

fn responses(operation: &Operation, generator: &mut SchemaGenerator) -> Value {
    let mut responses: BTreeMap<String, Value> = BTreeMap::new();
    for answer in &operation.answers {
        let schema = (answer.schema)(generator);
        let entry = responses
            .entry(answer.status.to_string())
            .or_insert_with(|| json!({"description": answer.about, "content": {}}));
        match &mut entry["content"][answer.content]["schema"] {
            Value::Null => entry["content"][answer.content] = json!({"schema": schema}),
            other => *other = json!({"oneOf": [other.clone(), schema]}),
        }
    }
    let mut problems: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    for kind in &operation.problems {
        problems.entry(kind.status().as_u16()).or_default().push(format!("`{BASE}{}`", kind.slug()));
    }
    for (status, types) in problems {
        let content = json!({problem::CONTENT_TYPE: {"schema": of::<Problem>(generator)}});
        let entry = responses.entry(status.to_string());
        entry.or_insert_with(|| json!({"description": types.join(", "), "content": content}));
    }
    json!(responses)
}

#[cfg(test)]
#[path = "openapi_tests.rs"]
mod tests;
