//! JSON Schemas of the documents that leave a store, made from what the code knows: `docs/schemas/*.json`.

use agent_admin::manifest::MANIFEST_FORMAT;
use agent_core::state::SessionState;
use agent_runtime::state_payload::STATE_FORMAT;
use agent_transcript::Speaker;
use serde_json::{Value, json};

/// The files below `docs/schemas`, each with its text.
pub fn files() -> Vec<(&'static str, String)> {
    let text = |schema: Value| format!("{schema:#}\n");
    vec![("session.json", text(session())), ("state.json", text(state()))]
}

/// A session as a document, as [`agent_admin::manifest::Manifest`] writes it.
pub fn session() -> Value {
    let states: Vec<_> = SessionState::ALL.iter().map(|state| state.as_str()).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A session as a document",
        "description": "Made by `cargo run -p docs --bin schemas`. The record is what the events fold into; it may have further fields.",
        "type": "object",
        "required": ["format", "kind", "session", "events", "crc32c"],
        "additionalProperties": false,
        "properties": {
            "format": { "const": MANIFEST_FORMAT },
            "kind": { "const": "session" },
            "session": {
                "type": "object",
                "required": ["id", "workspace", "head", "status", "creator", "created_at", "last_active_at"],
                "properties": {
                    "id": { "$ref": "#/$defs/uuid" },
                    "workspace": { "anyOf": [{ "$ref": "#/$defs/uuid" }, { "const": "default" }] },
                    "head": { "$ref": "#/$defs/seq" },
                    "status": {
                        "type": "object",
                        "required": ["state"],
                        "properties": { "state": { "enum": states } },
                    },
                    "created_at": { "$ref": "#/$defs/time" },
                    "last_active_at": { "$ref": "#/$defs/time" },
                },
            },
            "events": { "$ref": "#/$defs/events" },
            "ancestors": {
                "description": "The sessions that this one was made from, parents first, each with its events up to the last that is shared.",
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "required": ["session", "events"],
                    "additionalProperties": false,
                    "properties": {
                        "session": { "$ref": "#/$defs/uuid" },
                        "events": { "$ref": "#/$defs/events" },
                    },
                },
            },
            "crc32c": {
                "description": "CRC-32C of the bytes before `,\"crc32c\":`.",
                "type": "string",
                "pattern": "^[0-9a-f]{8}$",
            },
        },
        "$defs": {
            "uuid": {
                "type": "string",
                "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
            },
            "seq": { "type": "integer", "minimum": 1 },
            "time": { "type": "string", "pattern": "^\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}:\\d{2}\\.\\d{6}Z$" },
            "events": {
                "description": "In order, without a gap. Types and fields that are not known are kept as they are.",
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "required": ["seq", "id", "commit", "n", "of", "at", "type", "actor", "data"],
                    "properties": {
                        "seq": { "$ref": "#/$defs/seq" },
                        "id": { "$ref": "#/$defs/uuid" },
                        "commit": { "$ref": "#/$defs/uuid" },
                        "n": { "type": "integer", "minimum": 1 },
                        "of": { "type": "integer", "minimum": 1 },
                        "at": { "$ref": "#/$defs/time" },
                        "type": { "type": "string", "minLength": 1 },
                        "actor": { "type": "string", "minLength": 1 },
                        "run": { "$ref": "#/$defs/uuid" },
                        "transition": { "type": "object" },
                        "blobs": {
                            "description": "Names of the blobs that the event refers to, in order, each once.",
                            "items": { "type": "string", "pattern": "^[0-9a-f]{64}$" },
                            "minItems": 1,
                            "type": "array",
                        },
                    },
                },
            },
        },
    })
}

/// The state of a session, as [`agent_runtime::state_payload::StatePayload`] writes and reads it.
pub fn state() -> Value {
    let roles: Vec<_> = Speaker::ALL.iter().map(|speaker| json!(speaker)).collect();
    let texts = json!({ "type": ["object", "null"], "additionalProperties": { "$ref": "#/$defs/text" } });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The state of a session",
        "description": "Made by `cargo run -p docs --bin schemas`. Any of the four parts may be missing, null or empty.",
        "type": "object",
        "required": ["format", "kind"],
        "properties": {
            "format": { "const": STATE_FORMAT },
            "kind": { "const": "state" },
            "history": {
                "type": ["array", "null"],
                "items": {
                    "type": "object",
                    "required": ["role", "text"],
                    "properties": { "role": { "enum": roles }, "text": { "type": "string" } },
                },
            },
            "core_memory": texts.clone(),
            "documents": texts,
            "runtime": {
                "type": ["object", "null"],
                "required": ["version", "state"],
                "properties": { "version": { "type": "integer", "minimum": 0 } },
            },
        },
        "$defs": {
            "text": {
                "type": "object",
                "required": ["text"],
                "properties": {
                    "text": { "type": "string" },
                    "format": { "type": "integer", "minimum": 0 },
                    "limit": { "type": ["integer", "null"], "minimum": 0 },
                },
            },
        },
    })
}
