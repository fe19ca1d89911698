//! Tools of all plugins, by name. Calls that fail, panic or take too long become results.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tracing::warn;

use crate::config::ToolPolicy;
use crate::context::READ_OUTPUT;
use crate::model::provider::{ToolMode, ToolSpec};
use crate::tool::output::ToolOutput;
use crate::tool::plugin::{Plugin, ToolContext};
use crate::tool::read_output::ReadOutput;
use agent_core::SessionStore;
use agent_core::event::{EVENT_MAX_BYTES, EventPayload, ToolOutcome, ToolResult, ToolUse};
use agent_core::isolated::{called, isolated};
use agent_core::json::RawJson;

/// Policies for tools by name.
type Policies = BTreeMap<String, ToolPolicy>;

/// Maximum bytes of a tool's error; in an event a byte of text takes up to six bytes.
const ERROR_MAX_BYTES: usize = 2 << 20;

/// Tools that one plugin offers in a session.
pub(crate) type SessionTools = (String, Arc<dyn Plugin>, Vec<ToolSpec>);

/// Sentence for a person about a call; `None` for the call itself.
pub(crate) type AskPerson = dyn Fn(&ToolUse) -> Option<String> + Send + Sync;

/// Sentences of the host for the tools of plugins, by the names of the tools.
#[derive(Clone, Default)]
pub(crate) struct Sentences(pub(crate) HashMap<String, Arc<AskPerson>>);

impl fmt::Debug for Sentences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Tools of all plugins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Toolbox {
    /// Tools as their plugins offer them.
    specs: Vec<ToolSpec>,
    /// Plugin of each tool, with the plugin's name.
    owners: HashMap<String, (String, Arc<dyn Plugin>)>,
    /// True if the tool that reads shortened outputs is among them.
    reads_outputs: bool,
    sentences: Sentences,
}

impl Toolbox {
    /// Creates the toolbox of these plugins under the host's policies.
    pub(crate) fn new(
        plugins: &[(String, Arc<dyn Plugin>)],
        policies: &Policies,
        faults: &mut Vec<String>,
    ) -> Self {
        let mut toolbox = Self::default();
        for (name, plugin) in plugins {
            let Some(specs) = called(|| plugin.tools()) else {
                faults.push(format!("plugin {name} panicked in `tools`"));
                continue;
            };
            for spec in specs {
                if policies.get(&spec.name).is_some_and(|policy| decided(spec.mode, *policy).is_none()) {
                    faults.push(format!("tool {} is not run here; a policy can only deny it", spec.name));
                }
                faults.extend(spec_faults(&spec, name));
                let owner = (name.clone(), plugin.clone());
                if let Some((other, _)) = toolbox.owners.insert(spec.name.clone(), owner) {
                    faults.push(format!(
                        "tool {} is offered twice, by plugin {other} and plugin {name}",
                        spec.name
                    ));
                }
                toolbox.specs.push(spec);
            }
        }
        toolbox
    }

    /// Sets the host's sentences about calls.
    pub(crate) fn with_sentences(mut self, sentences: Sentences) -> Self {
        self.sentences = sentences;
        self
    }

    /// Adds the tool that reads shortened outputs, if other tools give outputs and none of them has its name.
    pub(crate) fn with_read_output(mut self) -> Self {
        if !self.specs.is_empty() && !self.has(READ_OUTPUT) {
            self.specs.push(ReadOutput::spec());
            let owner: (_, Arc<dyn Plugin>) = (READ_OUTPUT.to_owned(), Arc::new(ReadOutput));
            self.owners.insert(READ_OUTPUT.to_owned(), owner);
            self.reads_outputs = true;
        }
        self
    }

    /// Returns the toolbox with the tools that plugins offer in a session, without those that providers would refuse.
    pub(crate) fn with_session_tools(&self, found: Vec<SessionTools>, read_outputs: bool) -> Self {
        let mut toolbox = self.clone();
        for (name, plugin, specs) in found {
            for spec in specs {
                let mut faults = spec_faults(&spec, &name);
                if toolbox.has(&spec.name) {
                    faults.push(format!("tool {} of plugin {name} has the name of another tool", spec.name));
                }
                if !faults.is_empty() {
                    warn!(plugin = name, faults = faults.join("; "), "a tool of the session is left out");
                    continue;
                }
                toolbox.owners.insert(spec.name.clone(), (name.clone(), plugin.clone()));
                toolbox.specs.push(spec);
            }
        }
        if read_outputs { toolbox.with_read_output() } else { toolbox }
    }

    /// Returns the tools that the model is offered under these policies, each with its effective mode. What they are
    /// depends on the host and the store, not on the conversation: a model is given the tools before its messages, and a
    /// change costs the cache of its provider.
    pub(crate) fn offered(&self, policies: &Policies, store: &dyn SessionStore) -> Vec<ToolSpec> {
        let decided = |spec: &ToolSpec| spec.clone().with_mode(mode(spec, policies));
        let is_offered = |spec: &ToolSpec| {
            let needs_blobs = self.reads_outputs && spec.name == READ_OUTPUT;
            spec.mode != ToolMode::Never && !(needs_blobs && store.capabilities().blob_max_bytes == 0)
        };
        self.specs.iter().map(decided).filter(is_offered).collect()
    }

    /// Returns whether the model is offered the tool that reads shortened outputs.
    pub(crate) fn reads_outputs(&self, policies: &Policies) -> bool {
        self.reads_outputs && self.mode(READ_OUTPUT, policies) != ToolMode::Never
    }

    /// Returns how the calls of a tool are made under these policies.
    pub(crate) fn mode(&self, name: &str, policies: &Policies) -> ToolMode {
        let spec = self.specs.iter().find(|spec| spec.name == name);
        spec.map_or(ToolMode::Direct, |spec| mode(spec, policies))
    }

    /// Returns whether a plugin has a tool of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.owners.contains_key(name)
    }

    /// Returns the result of a call whose plugin refuses its input; `None` if the plugin accepts it.
    pub(crate) fn refused(&self, call: &ToolUse) -> Option<ToolResult> {
        let (_, plugin) = self.owners.get(&call.name)?;
        let why = match called(|| plugin.check_input(&call.name, &call.input)) {
            Some(checked) => checked.err()?.to_string(),
            None => "the check of the arguments panicked; the tool was not called".to_owned(),
        };
        Some(failed(call, why))
    }

    /// Returns the sentence of the host, or of the plugin, with which a person is asked about a call; `None` if neither
    /// has one, or if it panics.
    pub(crate) fn question(&self, call: &ToolUse) -> Option<String> {
        let sentence = called(|| {
            let own = self.sentences.0.get(&call.name).and_then(|sentence| sentence(call));
            own.or_else(|| self.owners.get(&call.name)?.1.question(&call.name, &call.input))
        });
        if sentence.is_none() {
            warn!(tool = call.name, "the question about a call panicked; the call itself is shown");
        }
        sentence.flatten().filter(|sentence| !sentence.trim().is_empty())
    }

    /// Calls a tool; every failure is returned as the call's result.
    pub(crate) async fn call(
        &self,
        call: &ToolUse,
        context: ToolContext,
        policies: &Policies,
        time: Duration,
    ) -> ToolResult {
        if self.mode(&call.name, policies) == ToolMode::Never {
            let text = text_json(&format!("not called: {} is not allowed here", call.name));
            return ToolResult::new(call.call.clone(), ToolOutcome::Denied, text);
        }
        let Some((_, plugin)) = self.owners.get(&call.name) else {
            let offered = self.offered(policies, &*context.storage().sessions);
            let names: Vec<_> = offered.iter().map(|spec| spec.name.as_str()).collect();
            return failed(call, format!("there is no such tool; there are: {}", names.join(", ")));
        };
        let most = max_output_bytes(&context);
        let work = isolated(|| plugin.call_for_output(&call.name, call.input.clone(), context));
        match timeout(time, work).await {
            Ok(Some(Ok(output))) if (output.json_bytes() + output.media_bytes()) as u64 > most => failed(
                call,
                format!(
                    "the tool gave {} bytes, more than the {most} that the store keeps of an output; the call was made, and \
                     its output is lost",
                    output.json_bytes() + output.media_bytes()
                ),
            ),
            // The event that holds the output adds one level.
            Ok(Some(Ok(output))) if output.depth() >= RawJson::MAX_DEPTH => failed(
                call,
                format!(
                    "the tool gave JSON of {} levels, and at most {} are kept; give it as a text",
                    output.depth(),
                    RawJson::MAX_DEPTH - 1
                ),
            ),
            Ok(Some(Ok(output))) => done(call, output),
            Ok(Some(Err(error))) => failed(call, error.to_string()),
            Ok(None) => failed(call, "the tool panicked; whether it took effect is not known".to_owned()),
            Err(_) => failed(
                call,
                format!("the tool took longer than {time:?}; whether it took effect is not known"),
            ),
        }
    }
}

/// Returns the maximum number of bytes of an output: a blob holds a large one, and in a store without blobs the event.
fn max_output_bytes(context: &ToolContext) -> u64 {
    context.storage().sessions.capabilities().blob_max_bytes.max(EVENT_MAX_BYTES as u64 - 512)
}

/// Returns the result of a call that was made. A store would refuse parts that are wrong, and with them the run.
fn done(call: &ToolUse, output: ToolOutput) -> ToolResult {
    let ToolOutput { output, content, structured } = output;
    let mut result = ToolResult::new(call.call.clone(), ToolOutcome::Ok, output);
    (result.content, result.structured) = (content, structured);
    if result.content.is_empty() {
        return result;
    }
    let payload = EventPayload::AgentToolResult(result);
    match (payload.check(), payload) {
        (Ok(()), EventPayload::AgentToolResult(result)) => result,
        (Err(error), _) => failed(call, format!("the call was made, and its output is lost: {error}")),
        (Ok(()), _) => failed(call, "the call was made, and its output is lost".to_owned()),
    }
}

/// Returns the result of a call that failed with this text.
fn failed(call: &ToolUse, text: String) -> ToolResult {
    // Not shortened, because secrets are redacted later, and a part of a value is not recognized.
    let text = match text.len() > ERROR_MAX_BYTES {
        true => format!("the tool failed, with an error of {} bytes, which is not stored", text.len()),
        false => text,
    };
    ToolResult::new(call.call.clone(), ToolOutcome::Error, text_json(&text))
}

/// Returns everything that a provider would refuse in a tool, and with it every request that offers the tool.
fn spec_faults(spec: &ToolSpec, plugin: &str) -> Vec<String> {
    let name = &spec.name;
    let mut faults = Vec::new();
    if !ToolSpec::is_name(name) {
        faults.push(format!(
            "tool {name:?} of plugin {plugin} has a name that providers refuse; give it one of 1 to {} ASCII letters, digits, _ and -",
            ToolSpec::NAME_MAX_BYTES
        ));
    }
    let schema = spec.input.to::<serde_json::Value>().unwrap_or_default();
    if schema.get("type").and_then(serde_json::Value::as_str) != Some("object") {
        faults.push(format!(
            "tool {name} of plugin {plugin} has a schema that providers refuse; give it a JSON object with \"type\":\"object\""
        ));
    }
    faults
}

/// Returns how a tool is called under these policies.
fn mode(spec: &ToolSpec, policies: &Policies) -> ToolMode {
    policies.get(&spec.name).and_then(|policy| decided(spec.mode, *policy)).unwrap_or(spec.mode)
}

/// Returns how a tool is called under a host's policy; `None` if the policy cannot apply.
fn decided(mode: ToolMode, policy: ToolPolicy) -> Option<ToolMode> {
    match (policy, mode) {
        (ToolPolicy::Deny, _) | (_, ToolMode::Never) => Some(ToolMode::Never),
        (_, ToolMode::Outside | ToolMode::Ask) => None,
        (ToolPolicy::Allow, _) => Some(ToolMode::Direct),
        (ToolPolicy::Ask, _) => Some(ToolMode::Confirm),
    }
}

/// Returns a text as JSON.
pub(crate) fn text_json(text: &str) -> RawJson {
    RawJson::sure(&text)
}
