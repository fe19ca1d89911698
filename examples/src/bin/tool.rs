//! A function as a tool: its schema comes from the type of its arguments.
#![allow(clippy::print_stdout, reason = "it is an example")]

use agent::core::json::RawJson;
use agent::runtime::{ScriptedProvider, Turn};
use agent::schemars::JsonSchema;
use agent::{AgentBuilder, MemoryStore, ToolContext, tool};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "agent::schemars")]
struct City {
    /// Name of the city.
    city: String,
}

#[derive(Serialize)]
struct Weather {
    celsius: f64,
}

async fn weather(City { city }: City, _context: ToolContext) -> Result<Weather, String> {
    println!("(the weather of {city} is looked up)");
    match city.as_str() {
        "Paris" => Ok(Weather { celsius: 21.5 }),
        _ => Err(format!("no weather is known for {city}")),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A model that calls the tool and then answers, in place of one that needs a network.
    let call = RawJson::parse(r#"{"city": "Paris"}"#)?;
    let model = ScriptedProvider::new([
        Turn::new().call("call-1", "weather", call),
        Turn::new().text("It is 21.5 degrees in Paris."),
    ]);
    let agent = AgentBuilder::new()
        .with_llm(model)
        .with_storage(MemoryStore::new())
        .with_tool(tool("weather", "Current weather of a city.", weather))
        .build()?;
    let chat = agent.open(&"laptop".parse()?).await?;
    let answer = chat.prompt("How warm is it in Paris?").await?.finish().await?;
    println!("{}", answer.text);
    agent.close().await?;
    Ok(())
}
