// SPDX-License-Identifier: Apache-2.0
//! Every operation of the admin API: its path, parameters and answers, in the order of the documentation.

use serde_json::json;

use super::api::{Config, Effects, Line, List, Model, Replica, ScaleOrder, Settings, SettingsChange};
use super::decisions::Decision;
use super::openapi::{Operation, text};
use super::problem::Kind;

/// All of them.
pub(super) fn operations() -> Vec<Operation> {
    let mut all = health();
    all.extend(models());
    all.extend(orders());
    all.extend(rest());
    all
}

fn health() -> Vec<Operation> {
    vec![
        Operation::new("get", "/livez", "live", "Whether the process lives").free().answers(
            200,
            "text/plain",
            text,
            "It does.",
        ),
        Operation::new("get", "/readyz", "ready", "Whether it wants traffic")
            .free()
            .query("verbose", json!({"type": "string"}), "Every check in a line of its own.")
            .answers(200, "text/plain", text, "It does.")
            .answers(503, "text/plain", text, "It does not, and why."),
        Operation::new("get", "/metrics", "metrics", "Metrics in Prometheus' text format").answers(
            200,
            "text/plain; version=0.0.4; charset=utf-8",
            text,
            "The metrics.",
        ),
        Operation::new("get", "/openapi.json", "openapi", "This document").answers(
            200,
            "application/json",
            text,
            "OpenAPI 3.1.",
        ),
    ]
}

fn of_model(method: &'static str, path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation::new(method, path, id, summary)
        .parameter("path", "model", json!({"type": "string"}), "Name of the model, percent-encoded.")
        .problems(&[Kind::UnknownModel])
}

fn paged(operation: Operation) -> Operation {
    operation
        .query(
            "limit",
            json!({"type": "integer", "minimum": 1, "maximum": 1000}),
            "Most items; 1000 unless said.",
        )
        .query("cursor", json!({"type": "string"}), "The last page's `nextCursor`.")
        .problems(&[Kind::InvalidParameter])
}

fn models() -> Vec<Operation> {
    vec![
        paged(Operation::new("get", "/api/v1/models", "listModels", "Every configured model"))
            .query(
                "state",
                json!({"enum": ["cold", "starting", "slept", "ready", "draining"]}),
                "Only models in this state.",
            )
            .json::<List<Model>>(200, "A page of models, by name."),
        of_model("get", "/api/v1/models/{model}", "getModel", "One model").json::<Model>(200, "The model."),
        of_model("get", "/api/v1/models/{model}/logs", "getLogs", "What a model's replicas printed")
            .query(
                "tail",
                json!({"type": "integer", "minimum": 0, "maximum": 10000}),
                "Lines of the past; 100 unless said.",
            )
            .query("follow", json!({"type": "boolean"}), "Stay and send what comes.")
            .answers(200, "application/x-ndjson", super::openapi::of::<Line>, "One JSON document a line.")
            .problems(&[Kind::InvalidParameter]),
        paged(Operation::new("get", "/api/v1/replicas", "listReplicas", "Every replica"))
            .query("model", json!({"type": "string"}), "Only replicas of this model.")
            .query(
                "phase",
                json!({"enum": ["starting", "ready", "unready", "draining", "stopping"]}),
                "Only replicas in this phase.",
            )
            .json::<List<Replica>>(200, "A page of replicas, by number.")
            .problems(&[Kind::UnknownModel]),
        of_replica("get", "/api/v1/replicas/{replica}", "getReplica", "One replica")
            .json::<Replica>(200, "The replica."),
    ]
}

fn of_replica(
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
) -> Operation {
    Operation::new(method, path, id, summary)
        .parameter("path", "replica", json!({"type": "string"}), "Its id, such as `r7`.")
        .problems(&[Kind::UnknownReplica])
}

fn order(operation: Operation) -> Operation {
    changing(operation)
        .query("dryRun", json!({"type": "boolean"}), "Only tell what would change.")
        .query(
            "wait",
            json!({"type": "integer", "minimum": 0, "maximum": 300}),
            "Seconds to wait for the order's end.",
        )
        .json::<Effects>(200, "Waited for and done; with `dryRun`, what it would change.")
        .problems(&[Kind::InvalidParameter, Kind::FixedModel, Kind::ScalerStopped])
}

/// What every change takes and may be refused for.
fn changing(operation: Operation) -> Operation {
    operation
        .parameter(
            "header",
            "Idempotency-Key",
            json!({"type": "string", "maxLength": 255}),
            "The same key gets the same answer for an hour, and the order is carried out once.",
        )
        .problems(&[Kind::IdempotencyConflict, Kind::IdempotencyReused, Kind::TooLarge, Kind::InvalidBody])
}

fn orders() -> Vec<Operation> {
    const TAKEN: &str = "Taken; what it leads to takes its time.";
    let model = |path, id, summary| {
        order(of_model("post", path, id, summary)).json::<Model>(200, "").json::<Model>(202, TAKEN)
    };
    vec![
        model("/api/v1/models/{model}:wake", "wakeModel", "At least one replica now")
            .problems(&[Kind::StartFailed]),
        model("/api/v1/models/{model}:sleep", "sleepModel", "No replica, until the next request"),
        model("/api/v1/models/{model}:scale", "scaleModel", "So many replicas, until the model has idled")
            .takes::<ScaleOrder>("application/json")
            .problems(&[Kind::AboveMaximum, Kind::UnsupportedType, Kind::StartFailed]),
        model("/api/v1/models/{model}:drain", "drainModel", "All present replicas finish and go"),
        order(of_replica(
            "post",
            "/api/v1/replicas/{replica}:drain",
            "drainReplica",
            "One replica finishes and goes",
        ))
        .json::<Replica>(200, "")
        .json::<Replica>(202, TAKEN)
        .problems(&[Kind::UnknownModel]),
    ]
}

fn settings(operation: Operation) -> Operation {
    changing(operation)
        .query("dryRun", json!({"type": "boolean"}), "Only tell what it would come to.")
        .parameter(
            "header",
            "If-Match",
            json!({"type": "string"}),
            "Refuse it if the settings are another version.",
        )
        .json::<SettingsChange>(200, "In force; with `dryRun`, what it would come to.")
        .problems(&[
            Kind::InvalidParameter,
            Kind::PreconditionFailed,
            Kind::InvalidSettings,
            Kind::ScalerStopped,
        ])
}

fn rest() -> Vec<Operation> {
    let patch = |path, id| {
        settings(of_model(
            "patch",
            path,
            id,
            "Change a model's settings; keys of what runs need the role admin",
        ))
        .takes::<serde_json::Map<String, serde_json::Value>>("application/merge-patch+json")
        .problems(&[Kind::UnsupportedType])
    };
    const SETTINGS: &str = "/api/v1/models/{model}/settings";
    vec![
        of_model("get", SETTINGS, "getSettings", "A model's settings in force")
            .json::<Settings>(200, "The settings; `ETag` is their version."),
        patch("/api/v1/models/{model}", "patchModel"),
        patch(SETTINGS, "patchSettings"),
        settings(of_model("delete", SETTINGS, "resetSettings", "Back to what the file says")),
        Operation::new("get", "/api/v1/decisions", "listDecisions", "The last decisions, the latest last")
            .query("model", json!({"type": "string"}), "Only those about this model.")
            .query(
                "limit",
                json!({"type": "integer", "minimum": 1, "maximum": 1000}),
                "Most items; 100 unless said.",
            )
            .json::<List<Decision>>(200, "The decisions.")
            .problems(&[Kind::InvalidParameter, Kind::UnknownModel]),
        Operation::new("get", "/api/v1/config", "getConfig", "Which configuration is in force")
            .json::<Config>(200, "The configuration, without its values."),
        Operation::new("get", "/api/v1/journal", "getJournal", "The scaler's journal")
            .answers(200, "application/x-ndjson", text, "Its inputs, oldest first.")
            .problems(&[Kind::ScalerStopped]),
        Operation::new("get", "/api/v1/watch", "watch", "What changes, as server-sent events")
            .query("model", json!({"type": "string"}), "Only this model's events.")
            .parameter(
                "header",
                "Last-Event-ID",
                json!({"type": "string"}),
                "Where to go on; without it a snapshot comes first.",
            )
            .answers(
                200,
                "text/event-stream",
                super::openapi::of::<super::events::Event>,
                "`data` of each event; of `snapshot` and `reset` another document, see the documentation.",
            )
            .problems(&[Kind::InvalidParameter, Kind::UnknownModel]),
    ]
}
