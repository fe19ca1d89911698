//! Input schemas of tools, as far as the APIs refuse a request for one.

use serde_json::Value;

use crate::rule::{Refusal, Rule};

/// Members that no API takes at the top of a schema.
const AT_TOP: [&str; 3] = ["oneOf", "allOf", "anyOf"];
/// Members that OpenAI's does not take there either.
const AT_TOP_OF_OPENAI: [&str; 2] = ["enum", "not"];
/// Members whose value is a schema or a list of schemas.
const WITHIN: [&str; 6] = ["items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties"];
/// Members whose value is an object of schemas.
const BY_NAME: [&str; 3] = ["properties", "$defs", "definitions"];

fn refuse(what: String) -> Result<(), Refusal> {
    Err(Refusal::new(Rule::ToolSchema, what))
}

/// Checks the schemas of tools as Anthropic's Messages do.
pub(crate) fn of_anthropic<'a>(schemas: impl IntoIterator<Item = &'a Value>) -> Result<(), Refusal> {
    for (at, schema) in schemas.into_iter().enumerate() {
        let place = format!("tools.{at}.custom.input_schema");
        if schema["type"] != "object" {
            return refuse(format!("{place}.type: Input should be 'object'"));
        }
        if AT_TOP.iter().any(|name| schema.get(name).is_some()) {
            return refuse(format!(
                "{place}: input_schema does not support oneOf, allOf, or anyOf at the top level"
            ));
        }
        if !has_plain_keys(schema) {
            return refuse(format!(
                "{place}.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{{1,64}}$'"
            ));
        }
        if !is_of_2020(schema) {
            return refuse(format!(
                "{place}: JSON schema is invalid. It must match JSON Schema draft 2020-12 \
                 (https://json-schema.org/draft/2020-12)."
            ));
        }
    }
    Ok(())
}

/// Checks the schemas of functions as OpenAI's APIs do. A function may have none.
pub(crate) fn of_openai<'a>(
    functions: impl IntoIterator<Item = (Option<&'a str>, &'a Value)>,
) -> Result<(), Refusal> {
    for (name, schema) in functions {
        let place = format!("Invalid schema for function '{}'", name.unwrap_or_default());
        if schema.is_null() {
            continue;
        }
        let mut names = AT_TOP.iter().chain(&AT_TOP_OF_OPENAI);
        if schema["type"] != "object" || names.any(|name| schema.get(name).is_some()) {
            return refuse(format!(
                "{place}: schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
            ));
        }
        if !are_lists_complete(schema) {
            return refuse(format!("{place}: In context=('properties',), array schema missing items."));
        }
    }
    Ok(())
}

/// Returns the schemas within a schema.
fn within(schema: &Value) -> Vec<&Value> {
    let of = |name: &&str| schema.get(name);
    let mut found: Vec<_> =
        BY_NAME.iter().filter_map(of).filter_map(Value::as_object).flat_map(|parts| parts.values()).collect();
    for value in WITHIN.iter().filter_map(of) {
        match value {
            Value::Array(parts) => found.extend(parts),
            part => found.push(part),
        }
    }
    found
}

fn has_plain_keys(schema: &Value) -> bool {
    let is_plain = |key: &String| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        (1..=64).contains(&key.len()) && key.bytes().all(allowed)
    };
    schema["properties"].as_object().is_none_or(|parts| parts.keys().all(is_plain))
        && within(schema).into_iter().all(has_plain_keys)
}

/// Returns whether the members that differ between the drafts have the form of the newest.
fn is_of_2020(schema: &Value) -> bool {
    const KINDS: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];
    let is_kind = |kind: &Value| kind.as_str().is_some_and(|kind| KINDS.contains(&kind));
    let holds = |name: &str, check: &dyn Fn(&Value) -> bool| schema.get(name).is_none_or(check);
    holds("type", &|kind| kind.as_array().map_or_else(|| is_kind(kind), |kinds| kinds.iter().all(is_kind)))
        && holds("properties", &Value::is_object)
        && holds("required", &Value::is_array)
        && holds("items", &|items| items.is_object() || items.is_boolean())
        && holds("exclusiveMinimum", &Value::is_number)
        && holds("exclusiveMaximum", &Value::is_number)
        && within(schema).into_iter().all(is_of_2020)
}

fn are_lists_complete(schema: &Value) -> bool {
    (schema["type"] != "array" || schema.get("items").is_some())
        && within(schema).into_iter().all(are_lists_complete)
}
