//! Input schemas of servers as model providers take them.
//!
//! A provider refuses a whole request for one schema that it does not take, and with it each later request of the
//! conversation. So what no provider can use is taken out, which makes a schema allow more: the server checks its
//! arguments itself. Names of arguments that are refused become others, which [`restore`] turns back.

use std::collections::{BTreeMap, BTreeSet};

use agent_core::BlobName;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

/// Maximum bytes of the name of an argument.
const KEY_MAX_BYTES: usize = 64;
/// Hexadecimal digits of the hash at the end of a changed name.
pub(crate) const HASH_DIGITS: usize = 10;
/// Maximum number of schemas that are put together at the top.
const MERGES_MAX: usize = 64;

/// Members whose value is a schema.
const SCHEMAS: [&str; 12] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Members whose value is an object of schemas.
const SCHEMAS_BY_NAME: [&str; 5] =
    ["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"];
/// Members whose value is a list of schemas.
const LISTS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Members that providers do not take at the top.
const NOT_AT_TOP: [&str; 9] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const"];

/// Names of arguments for the model, each with the name of the server.
pub(crate) type Keys = BTreeMap<String, String>;

/// Returns a schema as providers take it, and the names that were changed.
///
/// # Errors
///
/// What is wrong, if the tool cannot be offered.
pub(crate) fn fit(mut schema: Map<String, Value>) -> Result<(Map<String, Value>, Keys), &'static str> {
    let whole = schema.clone();
    let mut left = MERGES_MAX;
    merge(&mut schema, &whole, &mut left);
    let is_object = match schema.get("type") {
        None => true,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        Some(kind) => kind == "object",
    };
    if !is_object {
        return Err("its input is no object");
    }
    schema.insert("type".to_owned(), json!("object"));
    if !schema.get("properties").is_some_and(Value::is_object) {
        schema.insert("properties".to_owned(), json!({}));
    }
    let mut fitting = Fitting { known: BTreeSet::new(), names: BTreeMap::new() };
    let mut schema = Value::Object(schema);
    fitting.collect(&mut schema);
    if fitting.names.values().any(|name| fitting.known.contains(name)) {
        return Err("the name of an argument cannot be changed into one that model providers take");
    }
    fitting.mend(&mut schema);
    let Value::Object(whole) = schema.clone() else { return Err("its input is no object") };
    remove_lost(&mut schema, &whole);
    let Value::Object(schema) = schema else { return Err("its input is no object") };
    Ok((schema, fitting.names.into_iter().map(|(old, new)| (new, old)).collect()))
}

/// Turns the names of arguments back into those of the server.
///
/// # Errors
///
/// A name under which an object has two values.
pub(crate) fn restore(arguments: &mut Map<String, Value>, keys: &Keys) -> Result<(), String> {
    if arguments.keys().any(|key| keys.contains_key(key)) {
        for (key, value) in std::mem::take(arguments) {
            let key = keys.get(&key).cloned().unwrap_or(key);
            if arguments.insert(key.clone(), value).is_some() {
                return Err(key);
            }
        }
    }
    arguments.values_mut().try_for_each(|value| restore_within(value, keys))
}

fn restore_within(value: &mut Value, keys: &Keys) -> Result<(), String> {
    match value {
        Value::Object(members) => restore(members, keys),
        Value::Array(items) => items.iter_mut().try_for_each(|item| restore_within(item, keys)),
        _ => Ok(()),
    }
}

fn is_key(key: &str) -> bool {
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'-');
    (1..=KEY_MAX_BYTES).contains(&key.len()) && key.bytes().all(is_plain)
}

/// Returns the name that stands for one that providers do not take: its plain characters, and a hash of it.
fn plain_key(key: &str) -> String {
    let plain: String = key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let kept: String = plain.trim_start_matches('_').chars().take(KEY_MAX_BYTES - HASH_DIGITS - 5).collect();
    // It begins with a letter, since some providers want that.
    let start = if kept.starts_with(|c: char| c.is_ascii_alphabetic()) { "" } else { "arg_" };
    with_hash(&format!("{start}{kept}"), key)
}

/// Returns what is kept of a name, with a hash of the whole name.
pub(crate) fn with_hash(kept: &str, whole: &str) -> String {
    let hash = BlobName::of(whole.as_bytes()).to_string();
    format!("{kept}_{}", &hash[..HASH_DIGITS])
}

/// Puts what a schema refers to, and what it is made of, into the schema itself: providers want an object at the top. Of
/// alternatives, an argument is required if each of them requires it.
fn merge(schema: &mut Map<String, Value>, whole: &Map<String, Value>, left: &mut usize) {
    let Some(fewer) = left.checked_sub(1) else { return };
    *left = fewer;
    let mut parts: Vec<(bool, Vec<Value>)> = Vec::new();
    if let Some(Value::String(to)) = schema.remove("$ref") {
        parts.push((true, find(whole, &to).cloned().into_iter().collect()));
    }
    for name in NOT_AT_TOP {
        match (name, schema.remove(name)) {
            ("allOf", Some(Value::Array(all))) => parts.push((true, all)),
            ("anyOf" | "oneOf", Some(Value::Array(any))) => parts.push((false, any)),
            ("then" | "else", Some(then)) => parts.push((false, vec![then, Value::Bool(true)])),
            _ => {}
        }
    }
    for (are_all, parts) in parts {
        let mut required: Option<BTreeSet<String>> = None;
        for part in parts {
            let Value::Object(mut part) = part else {
                required = required.filter(|_| are_all).or((!are_all).then(BTreeSet::new));
                continue;
            };
            merge(&mut part, whole, left);
            let own: BTreeSet<String> = strings(part.get("required")).map(str::to_owned).collect();
            required = Some(match required {
                None => own,
                Some(before) if are_all => &before | &own,
                Some(before) => &before & &own,
            });
            if let Some(kind) = part.remove("type") {
                schema.entry("type").or_insert(kind);
            }
            for name in SCHEMAS_BY_NAME {
                let Some(Value::Object(members)) = part.remove(name) else { continue };
                let known = schema.entry(name).or_insert_with(|| json!({}));
                if let Value::Object(known) = known {
                    for (name, member) in members {
                        known.entry(name).or_insert(member);
                    }
                }
            }
        }
        if let Some(required) = required.filter(|required| !required.is_empty()) {
            let before: BTreeSet<String> = strings(schema.get("required")).map(str::to_owned).collect();
            schema.insert("required".to_owned(), json!(&before | &required));
        }
    }
}

/// Returns the texts of a list.
fn strings(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Returns the steps of a reference to a part of the same schema.
fn steps(reference: &str) -> Option<Vec<String>> {
    let pointer = reference.strip_prefix('#')?;
    match pointer.strip_prefix('/') {
        Some(pointer) => Some(pointer.split('/').map(step).collect()),
        None => pointer.is_empty().then(Vec::new),
    }
}

/// Returns a step without the escapes of an address and of a pointer.
fn step(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().replace("~1", "/").replace("~0", "~")
}

/// Returns the part of a schema that a reference names.
fn find<'a>(whole: &'a Map<String, Value>, reference: &str) -> Option<&'a Value> {
    let steps = steps(reference)?;
    let (first, rest) = steps.split_first()?;
    rest.iter().try_fold(whole.get(first)?, |value, step| match value {
        Value::Object(members) => members.get(step),
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    })
}

/// Returns whether a member of a schema has a value that JSON Schema allows.
fn is_valid(name: &str, value: &Value) -> bool {
    const KINDS: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];
    let is_kind = |kind: &Value| kind.as_str().is_some_and(|kind| KINDS.contains(&kind));
    // Texts that are all different.
    let are_names = |value: &Value| {
        let count = value.as_array().map(Vec::len);
        count == Some(strings(Some(value)).collect::<BTreeSet<_>>().len())
    };
    match name {
        "type" => match value {
            Value::Array(kinds) => !kinds.is_empty() && kinds.iter().all(is_kind) && are_names(value),
            kind => is_kind(kind),
        },
        "required" => are_names(value),
        "enum" | "examples" => value.is_array(),
        "$id" | "$ref" | "$anchor" | "$dynamicRef" | "$dynamicAnchor" | "$comment" | "title"
        | "description" | "format" | "pattern" | "contentEncoding" | "contentMediaType" => value.is_string(),
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => value.is_number(),
        "multipleOf" => value.as_f64().is_some_and(|number| number > 0.0),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
        | "minContains" | "maxContains" => value.is_u64(),
        "uniqueItems" | "deprecated" | "readOnly" | "writeOnly" => value.is_boolean(),
        "dependentRequired" => value.as_object().is_some_and(|members| members.values().all(are_names)),
        // Dialects that a provider does not know.
        "$schema" => false,
        name if SCHEMAS_BY_NAME.contains(&name) => value.is_object(),
        name if LISTS.contains(&name) => value.as_array().is_some_and(|list| !list.is_empty()),
        _ => true,
    }
}

/// A schema that is made to fit.
struct Fitting {
    /// Names of arguments that providers take.
    known: BTreeSet<String>,
    /// Names that they do not take, each with the name that stands for it.
    names: BTreeMap<String, String>,
}

impl Fitting {
    /// Collects the names of all arguments.
    fn collect(&mut self, schema: &mut Value) {
        let Value::Object(members) = schema else { return };
        if let Some(Value::Object(named)) = members.get("properties") {
            for key in named.keys() {
                if is_key(key) {
                    self.known.insert(key.clone());
                } else {
                    self.names.insert(key.clone(), plain_key(key));
                }
            }
        }
        parts_mut(members).into_iter().for_each(|part| self.collect(part));
    }

    fn renamed(&self, key: &str) -> String {
        self.names.get(key).cloned().unwrap_or_else(|| key.to_owned())
    }

    /// Makes a schema, and those within, one that providers take.
    fn mend(&self, schema: &mut Value) {
        let members = match schema {
            Value::Object(members) => members,
            Value::Bool(false) => return,
            // The same, for those who want an object.
            _ => return *schema = json!({}),
        };
        members.retain(|name, value| is_valid(name, value));
        self.mend_reference(members);
        mend_list(members);
        mend_required(members);
        for (name, value) in members.iter_mut() {
            match (name.as_str(), value) {
                ("properties" | "dependentSchemas", Value::Object(parts)) => self.rename(parts),
                ("required", Value::Array(names)) => self.rename_all(names),
                ("dependentRequired", Value::Object(lists)) => {
                    self.rename(lists);
                    for names in lists.values_mut().filter_map(Value::as_array_mut) {
                        self.rename_all(names);
                    }
                }
                _ => {}
            }
        }
        parts_mut(members).into_iter().for_each(|part| self.mend(part));
    }

    fn rename(&self, parts: &mut Map<String, Value>) {
        *parts = std::mem::take(parts).into_iter().map(|(key, part)| (self.renamed(&key), part)).collect();
    }

    fn rename_all(&self, names: &mut [Value]) {
        for name in names {
            if let Value::String(key) = name {
                *key = self.renamed(key);
            }
        }
    }

    /// Follows changed names in a reference.
    fn mend_reference(&self, members: &mut Map<String, Value>) {
        let Some(Value::String(to)) = members.get("$ref") else { return };
        let Some(steps) = steps(to) else { return };
        let is_changed =
            |at: usize| at > 0 && steps[at - 1] == "properties" && self.names.contains_key(&steps[at]);
        if (0..steps.len()).any(is_changed) {
            let changed =
                |at: usize| if is_changed(at) { self.renamed(&steps[at]) } else { steps[at].clone() };
            let pointer = (0..steps.len())
                .map(changed)
                .map(|step| step.replace('~', "~0").replace('/', "~1").replace('%', "%25"));
            let pointer: Vec<_> = pointer.collect();
            members.insert("$ref".to_owned(), json!(format!("#/{}", pointer.join("/"))));
        }
    }
}

/// Returns the schemas within a schema.
fn parts_mut(members: &mut Map<String, Value>) -> Vec<&mut Value> {
    let mut found = Vec::new();
    for (name, value) in members {
        let name = name.as_str();
        if LISTS.contains(&name) || (name == "items" && value.is_array()) {
            // In older dialects, `items` may be a list.
            found.extend(value.as_array_mut().into_iter().flatten());
        } else if SCHEMAS_BY_NAME.contains(&name) {
            found.extend(value.as_object_mut().into_iter().flat_map(Map::values_mut));
        } else if SCHEMAS.contains(&name) {
            // Whether others are allowed is said with true or false everywhere.
            let is_keyword = name.starts_with("additional") || name.starts_with("unevaluated");
            found.extend(Some(value).filter(|value| !is_keyword || !value.is_boolean()));
        }
    }
    found
}

/// Removes references to something that is not there.
fn remove_lost(schema: &mut Value, whole: &Map<String, Value>) {
    let Value::Object(members) = schema else { return };
    if let Some(Value::String(to)) = members.get("$ref")
        && to != "#"
        && find(whole, to).is_none()
    {
        members.remove("$ref");
    }
    parts_mut(members).into_iter().for_each(|part| remove_lost(part, whole));
}

/// Gives a list the form of the newest JSON Schema: `items` is one schema, and there is one if the value is a list.
fn mend_list(members: &mut Map<String, Value>) {
    if members.get("items").is_some_and(Value::is_array) {
        let rest = members.remove("additionalItems");
        if let Some(items) = members.remove("items").filter(|items| *items != json!([])) {
            members.insert("prefixItems".to_owned(), items);
        }
        members.extend(rest.map(|rest| ("items".to_owned(), rest)));
    }
    let is_list = match members.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "array"),
        kind => kind.is_some_and(|kind| kind == "array"),
    };
    if is_list && !members.contains_key("items") {
        members.insert("items".to_owned(), json!({}));
    }
}

/// Describes the arguments that are required and not described, or requires them no more.
fn mend_required(members: &mut Map<String, Value>) {
    let Some(Value::Object(known)) = members.get("properties") else { return };
    let new = strings(members.get("required")).filter(|key| !known.contains_key(*key));
    let new: BTreeSet<String> = new.map(str::to_owned).collect();
    if let Some(Value::Array(names)) = members.get_mut("required") {
        names.retain(|name| name.as_str().is_none_or(|key| is_key(key) || !new.contains(key)));
    }
    if let Some(Value::Object(known)) = members.get_mut("properties") {
        known.extend(new.into_iter().filter(|key| is_key(key)).map(|key| (key, json!({}))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(schema: Value) -> (Value, Keys) {
        let Value::Object(schema) = schema else { panic!("no object") };
        let (schema, keys) = fit(schema).unwrap();
        (Value::Object(schema), keys)
    }

    #[test]
    fn names_that_providers_refuse_become_others_and_back() {
        let long = "k".repeat(80);
        let nested =
            json!({"type": "object", "properties": {"a b": {"type": "string"}}, "required": ["a b"]});
        let (schema, keys) = fitted(json!({
            "type": "object",
            "properties": {"$.xgafv": {"type": "string"}, "plain": nested, "list": {"type": "array", "items": nested},
                "same": {"$ref": "#/properties/$.xgafv"}, long.as_str(): {}, "": {}},
            "required": ["$.xgafv", "plain", long],
            "dependentRequired": {"$.xgafv": [long]},
            "$defs": {"Of[X]": {"anyOf": [nested, {"type": "null"}]}},
        }));
        let new = |old: &str| keys.iter().find(|(_, known)| *known == old).unwrap().0.clone();
        assert_eq!(keys.len(), 4, "{keys:?}");
        assert!(keys.keys().all(|key| is_key(key)), "{keys:?}");
        assert!(new("$.xgafv").starts_with("xgafv_"), "{keys:?}");
        let names: Vec<_> = schema["properties"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(names.iter().filter(|name| is_key(name)).count(), 6, "{names:?}");
        assert_eq!(schema["required"], json!([new("$.xgafv"), "plain", new(&long)]));
        assert_eq!(schema["dependentRequired"], json!({new("$.xgafv"): [new(&long)]}));
        assert_eq!(schema["properties"]["same"]["$ref"], format!("#/properties/{}", new("$.xgafv")));
        for part in [
            &schema["properties"]["plain"],
            &schema["properties"]["list"]["items"],
            &schema["$defs"]["Of[X]"]["anyOf"][0],
        ] {
            assert_eq!(part["required"], json!([new("a b")]), "{part}");
            assert!(part["properties"][new("a b")].is_object(), "{part}");
        }
        let mut arguments =
            json!({new("$.xgafv"): "1", "plain": {new("a b"): "x"}, "list": [{new("a b"): [1]}]});
        restore(arguments.as_object_mut().unwrap(), &keys).unwrap();
        assert_eq!(arguments, json!({"$.xgafv": "1", "plain": {"a b": "x"}, "list": [{"a b": [1]}]}));
        // The name of the server is understood, too; both are not.
        restore(arguments.as_object_mut().unwrap(), &keys).unwrap();
        assert_eq!(arguments["$.xgafv"], "1");
        arguments[new("$.xgafv")] = json!("2");
        assert_eq!(restore(arguments.as_object_mut().unwrap(), &keys), Err("$.xgafv".to_owned()));
    }

    #[test]
    fn a_name_that_is_taken_leaves_the_tool_out() {
        let schema = json!({"properties": {"$.x": {}, plain_key("$.x"): {}}});
        assert!(fit(schema.as_object().unwrap().clone()).is_err());
        let schema = json!({"type": "string"});
        assert_eq!(fit(schema.as_object().unwrap().clone()), Err("its input is no object"));
    }

    #[test]
    fn the_top_becomes_an_object() {
        assert_eq!(fitted(json!({})).0, json!({"type": "object", "properties": {}}));
        assert_eq!(fitted(json!({"type": ["object", "null"]})).0["type"], "object");
        let (schema, _) = fitted(json!({
            "anyOf": [
                {"properties": {"a": {"type": "string"}, "b": {}}, "required": ["a", "b"]},
                {"$ref": "#/$defs/Other"},
            ],
            "allOf": [{"properties": {"d": {}}, "required": ["d"]}],
            "if": {"properties": {"a": {"const": "x"}}}, "then": {"properties": {"e": {}}, "required": ["e"]},
            "$defs": {"Other": {"type": "object", "properties": {"a": {}, "c": {}}, "required": ["a"]}},
        }));
        let names: Vec<_> = schema["properties"].as_object().unwrap().keys().collect();
        assert_eq!(names.len(), 5, "{names:?}");
        assert_eq!(schema["properties"]["a"], json!({"type": "string"}));
        assert_eq!(schema["required"], json!(["a", "d"]));
        assert!(NOT_AT_TOP.iter().all(|name| schema.get(name).is_none()), "{schema}");
        let (schema, _) = fitted(
            json!({"$ref": "#/$defs/In", "$defs": {"In": {"type": "object", "properties": {"a": {}}}}}),
        );
        assert!(schema["properties"]["a"].is_object() && schema.get("$ref").is_none(), "{schema}");
        // It has no end.
        assert_eq!(
            fitted(json!({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}})).0["type"],
            "object"
        );
        assert_eq!(fitted(json!({"$ref": "#"})).0["type"], "object");
    }

    #[test]
    fn what_is_no_json_schema_is_taken_out() {
        let (schema, keys) = fitted(json!({
            "$schema": "http://json-schema.org/draft-04/schema#",
            "properties": {
                "old": {"type": "number", "minimum": 1, "exclusiveMinimum": true, "required": true},
                "kind": {"type": "any", "description": 7, "minLength": -1},
                "php": {"type": "object", "properties": [], "required": []},
                "pair": {"type": "array", "items": [{"type": "string"}, {"type": "str"}], "additionalItems": false},
                "list": {"type": "array"},
                "gone": {"$ref": "#/$defs/Gone", "description": "kept"},
                "far": {"$ref": "https://example.com/schema.json"},
                "any": true,
                "none": "text",
                "free": {"type": "object", "additionalProperties": true, "default": {"$.x": 1}},
            },
            "required": ["old", "old"],
            "$defs": {"Of[X]": {}, "N": {"properties": {"a": {"$ref": "#/$defs/Of%5BX%5D"}}, "required": ["a", "b", "$.c"]}},
        }));
        assert_eq!(
            schema,
            json!({
                "type": "object",
                "properties": {
                    "old": {"type": "number", "minimum": 1},
                    "kind": {},
                    "php": {"type": "object", "required": []},
                    "pair": {"type": "array", "prefixItems": [{"type": "string"}, {}], "items": false},
                    "list": {"type": "array", "items": {}},
                    "gone": {"description": "kept"},
                    "far": {},
                    "any": {},
                    "none": {},
                    "free": {"type": "object", "additionalProperties": true, "default": {"$.x": 1}},
                },
                "$defs": {
                    "Of[X]": {},
                    "N": {"properties": {"a": {"$ref": "#/$defs/Of%5BX%5D"}, "b": {}}, "required": ["a", "b"]},
                },
            })
        );
        assert!(keys.is_empty());
    }

    /// Numbers that are the same each time.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, most: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap() % most
        }

        fn one_of<'a>(&mut self, all: &[&'a str]) -> &'a str {
            all[self.below(all.len())]
        }

        /// Returns something that a careless server may write as a schema.
        fn schema(&mut self, depth: usize) -> Value {
            const MEMBERS: [&str; 24] = [
                "type",
                "type",
                "type",
                "properties",
                "properties",
                "required",
                "items",
                "anyOf",
                "oneOf",
                "allOf",
                "$ref",
                "$defs",
                "definitions",
                "additionalProperties",
                "enum",
                "not",
                "if",
                "then",
                "exclusiveMinimum",
                "const",
                "description",
                "prefixItems",
                "additionalItems",
                "dependentRequired",
            ];
            if depth == 0 || self.below(12) == 0 {
                return [
                    json!(true),
                    json!(false),
                    json!({}),
                    json!(7),
                    json!("text"),
                    Value::Null,
                    json!([]),
                ][self.below(7)]
                .clone();
            }
            let mut schema = Map::new();
            for _ in 0..self.below(6) {
                let name = self.one_of(&MEMBERS);
                let value = self.member(name, depth - 1);
                schema.insert(name.to_owned(), value);
            }
            Value::Object(schema)
        }

        fn member(&mut self, name: &str, depth: usize) -> Value {
            const KEYS: [&str; 6] = ["a", "b", "$.x", "", "a b", "type"];
            const KINDS: [&str; 6] = ["object", "object", "array", "string", "any", "null"];
            let refs = [
                "#",
                "#/$defs/a",
                "#/properties/$.x",
                "#/definitions/b",
                "#/nowhere",
                "other.json",
                "#/properties/a/items/0",
                "#/properties/b/anyOf/1",
                "#/allOf/0",
            ];
            match (name, self.below(10)) {
                (_, 0) => self.schema(depth),
                ("type", 1) => json!([self.one_of(&KINDS), self.one_of(&KINDS)]),
                ("type", _) => json!(self.one_of(&KINDS)),
                ("properties" | "$defs" | "definitions", _) => {
                    let count = self.below(4);
                    (0..count).map(|_| (self.one_of(&KEYS).to_owned(), self.schema(depth))).collect()
                }
                ("required" | "enum", _) => json!([self.one_of(&KEYS), self.one_of(&KEYS)]),
                ("dependentRequired", _) => json!({self.one_of(&KEYS): [self.one_of(&KEYS)]}),
                ("anyOf" | "oneOf" | "allOf" | "prefixItems", _) => {
                    json!([self.schema(depth), self.schema(depth)])
                }
                ("items", 1..=3) => json!([self.schema(depth)]),
                ("$ref", _) => json!(self.one_of(&refs)),
                ("exclusiveMinimum", at) => {
                    if at < 5 {
                        json!(true)
                    } else {
                        json!(1)
                    }
                }
                ("description", _) => json!("About."),
                _ => self.schema(depth),
            }
        }
    }

    /// Returns whether each reference is to a part of the schema.
    fn refers_to_itself(value: &Value, whole: &Map<String, Value>) -> bool {
        let Value::Object(members) = value else { return true };
        members.iter().all(|(name, value)| match (name.as_str(), value) {
            ("$ref", Value::String(to)) => to == "#" || find(whole, to).is_some(),
            (name, Value::Object(parts)) if SCHEMAS_BY_NAME.contains(&name) => {
                parts.values().all(|part| refers_to_itself(part, whole))
            }
            (name, Value::Array(parts)) if LISTS.contains(&name) => {
                parts.iter().all(|part| refers_to_itself(part, whole))
            }
            (name, part) if SCHEMAS.contains(&name) => refers_to_itself(part, whole),
            _ => true,
        })
    }

    #[test]
    fn any_schema_fits_or_is_left_out() {
        use model_servers::{Provider, Request, Wire};
        let messages = json!([{"role": "user", "content": "Hello"}]);
        let (anthropic, chat) = (Provider::new(Wire::Anthropic), Provider::new(Wire::Chat));
        let (mut numbers, mut fitted) = (Numbers(7), 0);
        for _ in 0..1500 {
            let Value::Object(schema) = numbers.schema(6) else { continue };
            let Ok((fit, keys)) = fit(schema.clone()) else { continue };
            fitted += 1;
            let tools = json!([{"name": "t", "input_schema": fit}]);
            let body = json!({"max_tokens": 9, "tools": tools, "messages": messages});
            let checked = anthropic.check(&Request::new("/v1/messages", &body));
            assert!(checked.is_ok(), "{checked:?}\n{schema:?}\n{fit:?}");
            let tools = json!([{"type": "function", "function": {"name": "t", "parameters": fit}}]);
            let body = json!({"tools": tools, "messages": messages});
            let checked = chat.check(&Request::new("/chat/completions", &body));
            assert!(checked.is_ok(), "{checked:?}\n{schema:?}\n{fit:?}");
            assert!(refers_to_itself(&Value::Object(fit.clone()), &fit), "{schema:?}\n{fit:?}");
            // A schema that fits is not changed again.
            assert_eq!(super::fit(fit.clone()), Ok((fit, Keys::new())), "{keys:?}");
        }
        assert!(fitted > 300, "{fitted}");
    }

    #[test]
    fn a_schema_that_providers_take_stays_as_it_is() {
        let schema = json!({
            "type": "object",
            "properties": {
                "at": {"$ref": "#/$defs/Point", "description": "Where."},
                "kind": {"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}], "default": null},
            },
            "required": ["at"],
            "additionalProperties": false,
            "$defs": {"Point": {"type": "object", "properties": {"x": {"type": "number", "exclusiveMinimum": 0}}}},
        });
        assert_eq!(fitted(schema.clone()), (schema, Keys::new()));
    }
}
