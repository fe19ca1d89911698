//! Tools of a server as the agent offers them: names, limits and digests.

use std::collections::{BTreeMap, BTreeSet};

use agent_core::BlobName;
use agent_core::json::RawJson;
use agent_core::text::quoted;
use agent_runtime::ToolSpec;
use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};

use crate::schema::{self, HASH_DIGITS};

/// Separator of the names of a server and of its tool.
pub(crate) const SEPARATOR: &str = "__";
/// Maximum bytes of a description; the rest is cut.
const DESCRIPTION_MAX_BYTES: usize = 16 << 10;
/// Maximum bytes of an input schema.
const SCHEMA_MAX_BYTES: usize = 64 << 10;
/// Maximum levels of an input schema.
const SCHEMA_MAX_DEPTH: usize = 32;
/// Maximum bytes of the descriptions and schemas of all tools of a server.
const LIST_MAX_BYTES: usize = 1 << 20;
/// Maximum number of notes about the tools of a server.
const NOTES_MAX: usize = 20;

/// Tool of an MCP server, as a session is offered it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct McpTool {
    /// Name by which the model calls it.
    pub name: String,
    /// Name of the server in the configuration.
    pub server: String,
    /// Name that the server gives it.
    pub tool: String,
    /// Description for the model.
    pub description: String,
    /// JSON schema of the input, as the model is given it.
    pub input: RawJson,
    /// Arguments whose names model providers refuse: the name that the model is given, and that of the server.
    pub renamed: BTreeMap<String, String>,
    /// SHA-256 of the server's command or address, and of the tool's name, description and schema, in hexadecimal.
    pub digest: String,
    /// True if nobody is asked about its calls.
    pub always: bool,
}

impl McpTool {
    pub(crate) fn spec(&self) -> ToolSpec {
        use agent_runtime::ToolMode::{Confirm, Direct};
        let mode = if self.always { Direct } else { Confirm };
        ToolSpec::new(&self.name, &self.description).with_input(self.input.clone()).with_mode(mode)
    }
}

/// Tools of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolList {
    /// Tools in the order of their names.
    pub(crate) tools: Vec<McpTool>,
    /// Number of tools that are left out.
    pub(crate) left_out: usize,
    /// Which are left out and why, and which arguments have other names.
    pub(crate) notes: Vec<String>,
}

/// List of a server's tools while its pages are read.
#[derive(Debug)]
pub(crate) struct ToolListReader<'a> {
    server: &'a str,
    identity: &'a str,
    most: usize,
    bytes: usize,
    names: BTreeSet<String>,
    list: ToolList,
}

impl<'a> ToolListReader<'a> {
    pub(crate) fn new(server: &'a str, identity: &'a str, most: usize) -> Self {
        Self { server, identity, most, bytes: 0, names: BTreeSet::new(), list: ToolList::default() }
    }

    /// Takes a tool of a page.
    pub(crate) fn push(&mut self, tool: &Tool) {
        let schema = (*tool.input_schema).clone();
        self.add(&tool.name, tool.description.as_deref().unwrap_or_default(), schema);
    }

    /// Takes what a page has in place of a tool. One wrong tool hides none of the others.
    pub(crate) fn push_value(&mut self, value: &Value) {
        match serde_json::from_value(value.clone()) {
            Ok(tool) => self.push(&tool),
            Err(_) => {
                let name = value.get("name").and_then(Value::as_str).unwrap_or_default();
                self.leave_out(name, "it is no tool of the protocol");
            }
        }
    }

    /// Returns whether there is room for more tools.
    pub(crate) fn has_room(&self) -> bool {
        self.list.tools.len() < self.most
    }

    fn add(&mut self, tool: &str, description: &str, schema: JsonObject) {
        if !self.has_room() {
            let text = format!("tools after the first {} are left out; set tools_max", self.most);
            self.list.left_out += 1;
            return self.note(text);
        }
        let taken = self.tool(tool, description, schema).and_then(|taken| {
            if self.names.insert(taken.name.clone()) { Ok(taken) } else { Err("its name occurred before") }
        });
        match taken {
            Ok(taken) => {
                for (new, old) in &taken.renamed {
                    let (tool, old) = (quoted(tool), quoted(old));
                    self.note(format!("tool {tool}: the model is given argument {old} as {new}"));
                }
                self.list.tools.push(taken);
            }
            Err(why) => self.leave_out(tool, why),
        }
    }

    fn leave_out(&mut self, tool: &str, why: &str) {
        self.list.left_out += 1;
        self.note(format!("tool {} is left out: {why}", quoted(tool)));
    }

    fn note(&mut self, text: String) {
        let notes = &mut self.list.notes;
        if notes.len() < NOTES_MAX && !notes.contains(&text) {
            notes.push(text);
        }
    }

    fn tool(&mut self, tool: &str, description: &str, schema: JsonObject) -> Result<McpTool, &'static str> {
        if tool.is_empty() || tool.len() > 1024 || tool.chars().any(char::is_control) {
            return Err("it has no name, or one with control characters or more than 1024 bytes");
        }
        check_size(&schema)?;
        // What the server wrote, before anything is cut or added.
        let digest = digest(self.identity, tool, description, &schema);
        let (schema, renamed) = schema::fit(schema)?;
        let input = check_size(&schema)?;
        let description = cut(description, DESCRIPTION_MAX_BYTES);
        let bytes = self.bytes + input.get().len() + description.len();
        if bytes > LIST_MAX_BYTES {
            return Err("the descriptions and schemas of all tools have more than 1 MiB");
        }
        self.bytes = bytes;
        Ok(McpTool {
            name: tool_name(self.server, tool),
            server: self.server.to_owned(),
            tool: tool.to_owned(),
            description: description.to_owned(),
            input,
            renamed,
            digest,
            always: false,
        })
    }

    /// Returns the tools. Their order does not depend on that of the server, which may give another one each time.
    pub(crate) fn finish(mut self) -> ToolList {
        self.list.tools.sort_by(|one, other| one.name.cmp(&other.name));
        self.list
    }
}

/// Returns a schema as JSON, if it is small enough.
fn check_size(schema: &JsonObject) -> Result<RawJson, &'static str> {
    match RawJson::of(schema) {
        Ok(schema) if schema.get().len() > SCHEMA_MAX_BYTES => Err("its input schema has more than 64 KiB"),
        Ok(schema) if schema.depth() > SCHEMA_MAX_DEPTH => Err("its input schema has more than 32 levels"),
        Ok(schema) => Ok(schema),
        Err(_) => Err("its input schema is no JSON"),
    }
}

/// Returns the name by which a model calls a tool.
fn tool_name(server: &str, tool: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    // Some providers want a letter or _ first. No server has a name with _ there.
    let first = if server.starts_with(|c: char| c.is_ascii_alphabetic()) { "" } else { "_" };
    let whole = format!("{first}{server}{SEPARATOR}{tool}");
    if whole.len() <= ToolSpec::NAME_MAX_BYTES && tool.chars().all(is_plain) {
        return whole;
    }
    let plain = whole.chars().map(|c| if is_plain(c) { c } else { '_' });
    let kept: String = plain.take(ToolSpec::NAME_MAX_BYTES - HASH_DIGITS - 1).collect();
    schema::with_hash(&kept, &whole)
}

/// Returns the digest of a tool. The order of members in the schema does not matter.
fn digest(identity: &str, tool: &str, description: &str, schema: &JsonObject) -> String {
    let mut whole = json!([identity, tool, description, schema]);
    whole.sort_all_objects();
    BlobName::of(whole.to_string().as_bytes()).to_string()
}

/// Returns the beginning of a text.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(most: usize, tools: &Value) -> ToolList {
        let mut reader = ToolListReader::new("srv", "[\"stdio\"]", most);
        tools.as_array().unwrap().iter().for_each(|tool| reader.push_value(tool));
        reader.finish()
    }

    #[test]
    fn names_are_those_that_providers_take() {
        assert_eq!(tool_name("srv", "echo"), "srv__echo");
        assert_eq!([tool_name("1st", "echo"), tool_name("-", "echo")], ["_1st__echo", "_-__echo"]);
        let long = "x".repeat(70);
        let names: Vec<_> = ["a.b", "a_b", "a/b", "a b", "ä", &long, &format!("{long}y"), &"é".repeat(60)]
            .map(|tool| tool_name("srv", tool))
            .into();
        let is_plain = |name: &String| {
            name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
        };
        assert!(names.iter().all(is_plain), "{names:?}");
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
        assert!(names[0].starts_with("srv__a_b_"), "{names:?}");
        // The same name each time, since sessions outlive processes.
        assert_eq!(names[0], tool_name("srv", "a.b"));
    }

    #[test]
    fn lies_in_a_list_hide_no_other_tool() {
        let schema = json!({"type": "object"});
        let deep = (0..40).fold(json!({}), |inner, _| json!({ "properties": inner }));
        let list = listed(
            100,
            &json!([
                {"name": "good", "inputSchema": schema},
                {"name": "good", "description": "another", "inputSchema": schema},
                {"name": "array", "inputSchema": {"type": "array"}},
                {"name": "text", "inputSchema": "none"},
                {"name": "", "inputSchema": schema},
                {"name": "line\nbreak", "inputSchema": schema},
                {"inputSchema": schema},
                {"name": "missing"},
                {"name": "deep", "inputSchema": deep},
                {"name": "large", "inputSchema": {"type": "object", "description": "x".repeat(70_000)}},
                7,
                {"name": "untyped", "description": "d".repeat(20_000), "inputSchema": {}},
            ]),
        );
        let names: Vec<_> = list.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["srv__good", "srv__untyped"]);
        assert_eq!((list.left_out, list.tools[0].description.as_str()), (10, ""));
        assert_eq!(list.tools[1].description.len(), 16 << 10);
        assert_eq!(list.tools[1].input.get(), r#"{"type":"object","properties":{}}"#);
        // Two have no name.
        assert_eq!(list.notes.len(), 9, "{:?}", list.notes);
        assert!(
            list.notes
                .contains(&"tool \"deep\" is left out: its input schema has more than 32 levels".to_owned())
        );
    }

    #[test]
    fn a_list_has_a_limit_and_an_order() {
        let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
        let list = listed(2, &json!([tool("c"), tool("a"), tool("b")]));
        let names: Vec<_> = list.tools.iter().map(|tool| tool.tool.as_str()).collect();
        assert_eq!((names, list.left_out), (vec!["a", "c"], 1));
        assert_eq!(list.notes, ["tools after the first 2 are left out; set tools_max"]);
        let many: Vec<_> = (0..100)
            .map(|at| json!({"name": format!("t{at}"), "inputSchema": {"type": "object", "title": "x".repeat(60_000)}}))
            .collect();
        let list = listed(100, &Value::from(many));
        assert_eq!((list.tools.len(), list.left_out), (17, 83));
    }

    #[test]
    fn a_digest_holds_what_a_person_allows() {
        let of = |identity: &str, tool: &str, description: &str, schema: Value| {
            digest(identity, tool, description, schema.as_object().unwrap())
        };
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {}}});
        let base = of("i", "t", "d", schema.clone());
        assert_eq!(base.len(), 64);
        let turned: Value =
            serde_json::from_str(r#"{"properties":{"b":{},"a":{"type":"string"}},"type":"object"}"#).unwrap();
        assert_eq!(of("i", "t", "d", turned), base);
        let mut others = vec![
            of("j", "t", "d", schema.clone()),
            of("i", "u", "d", schema.clone()),
            of("i", "t", "d.", schema),
            of("i", "t", "d", json!({"type": "object", "properties": {"a": {"type": "number"}, "b": {}}})),
            of("i", "t\",\"d", "", json!({})),
            of("i", "t", "d", json!({"a": ["b", {"c": 1}]})),
            of("i", "t", "d", json!({"a": ["b"], "c": 1})),
        ];
        others.push(base);
        assert_eq!(others.iter().collect::<BTreeSet<_>>().len(), others.len());
    }
}
