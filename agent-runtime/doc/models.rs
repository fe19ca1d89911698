// Set-up of the doc examples with models that follow a script; they include this file by a hidden line.

#[allow(unused_imports)]
use setup::*;

#[allow(dead_code, unused_imports)]
mod setup {
    include!("common.rs");

    /// A conversation with an agent whose model follows a script.
    pub async fn scripted(model: ScriptedProvider) -> Result<(AgentRuntime, Conversation)> {
        let agent = AgentBuilder::new().with_llm(model).with_storage(MemoryStore::new()).build()?;
        let chat = agent.conversation("support/4711").await?;
        Ok((agent, chat))
    }

    /// A conversation with an agent whose model says each of these texts in turn, the first one when the gate opens.
    pub async fn gated<const N: usize>(texts: [&str; N]) -> Result<(Gate, AgentRuntime, Conversation)> {
        let gate = Gate::new();
        let turn = |(index, text): (usize, &str)| {
            let turn = if index == 0 { Turn::new().gate(&gate) } else { Turn::new() };
            turn.text(text)
        };
        let turns: Vec<_> = texts.into_iter().enumerate().map(turn).collect();
        let (agent, chat) = scripted(ScriptedProvider::new(turns)).await?;
        Ok((gate, agent, chat))
    }

    /// A conversation with an agent whose first run fails, and is not tried again.
    pub async fn failing() -> Result<(ScriptedProvider, AgentRuntime, Conversation)> {
        let model = ScriptedProvider::new([Turn::new().fail("no credit")]);
        let once = Config::new().with_retry(Retry::new(Duration::ZERO, Duration::ZERO, 1));
        let builder = AgentBuilder::new().with_config(once).with_llm(model.clone());
        let agent = builder.with_storage(MemoryStore::new()).build()?;
        let chat = agent.conversation("support/4711").await?;
        Ok((model, agent, chat))
    }

    /// Arguments of a tool that needs none.
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    #[schemars(crate = "agent_runtime::schemars")]
    pub struct Nothing {}

    /// A tool without arguments, whose output is empty.
    pub fn task(name: &str, mode: ToolMode) -> Tool {
        tool(name, "Does it.", |_: Nothing, _| async { Ok::<_, String>("") }).with_mode(mode)
    }

    /// A conversation with an agent whose model calls a tool with this input, and then says a text.
    pub async fn calling(tool: Tool, input: &str, text: &str) -> Result<(AgentRuntime, Conversation)> {
        let call = Turn::new().call("1", &tool.spec().name, RawJson::parse(input)?);
        let model = ScriptedProvider::new([call, Turn::new().text(text)]);
        let builder = AgentBuilder::new().with_llm(model).with_tool(tool);
        let agent = builder.with_storage(MemoryStore::new()).build()?;
        let chat = agent.conversation("support/4711").await?;
        Ok((agent, chat))
    }
}
