//! Functions as tools: their schema, the check of their arguments, and the results that the model receives.

use std::fmt;

use crate::common::{ask, calls, device, read};
use agent_core::event::{Decision, Media, MediaSource, Part, ToolConfirmation, ToolOutcome};
use agent_core::json::RawJson;
use agent_core::{MemoryStore, Storage};
use agent_runtime::context::ModelMessage;
use agent_runtime::schemars::{self, JsonSchema};
use agent_runtime::{
    AgentBuilder, Conversation, MediaKind, ModelCapabilities, RunOutcome, ScriptedProvider, Tool,
    ToolContext, ToolMode, ToolOutput, Turn, tool, tool_for_output,
};
use agent_tests::{Site, each_store};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

#[derive(Deserialize, JsonSchema)]
struct City {
    /// Name of the city.
    city: String,
    #[serde(default)]
    place: Option<Place>,
}

#[derive(Deserialize, JsonSchema)]
struct Place {
    north: f64,
}

#[derive(Serialize)]
struct Weather {
    celsius: f64,
    at: Option<f64>,
}

struct NoWeather(String);

impl fmt::Display for NoWeather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no weather is known for {}", self.0)
    }
}

async fn weather(City { city, place }: City, _: ToolContext) -> Result<Weather, NoWeather> {
    assert!(city != "Atlantis", "it panics, as asked");
    if city == "Nowhere" {
        return Err(NoWeather(city));
    }
    Ok(Weather { celsius: 21.5, at: place.map(|place| place.north) })
}

fn weather_tool() -> Tool {
    tool("weather", "Current weather of a city.", weather)
}

/// Calls the tool with each of these arguments, in one run; the results.
async fn results(tools: Vec<Tool>, name: &str, arguments: &[Value]) -> Vec<(ToolOutcome, Value)> {
    let calls_of = |turn: Turn, (n, input): (usize, &Value)| {
        turn.call(&format!("c{n}"), name, RawJson::of(input).unwrap())
    };
    let turn = arguments.iter().enumerate().fold(Turn::new(), calls_of);
    let chat = chat(tools, ScriptedProvider::new([turn, Turn::new().text("done")])).await;
    assert_eq!(read(chat.prompt("go").await.unwrap()).await.0, "done");
    let results = calls(&chat).await.into_iter().map(|(_, results)| results[0].clone());
    results.map(|result| (result.outcome, result.output.to().unwrap())).collect()
}

async fn chat(tools: Vec<Tool>, model: ScriptedProvider) -> Conversation {
    let builder = AgentBuilder::new().with_llm(model).with_storage(MemoryStore::new());
    let agent = tools.into_iter().fold(builder, AgentBuilder::with_tool).build().unwrap();
    agent.open(&device("laptop")).await.unwrap()
}

/// The schema that the model is offered is that of the arguments: an object without references, with the fields'
/// descriptions and which of them are required.
#[test]
fn the_schema_is_that_of_the_arguments() {
    let tool = weather_tool();
    let schema: Value = tool.spec().input.to().unwrap();
    assert_eq!((&schema["type"], &schema["required"]), (&json!("object"), &json!(["city"])));
    assert_eq!(schema["properties"]["city"], json!({ "type": "string", "description": "Name of the city." }));
    let text = schema.to_string();
    assert!(text.contains("north") && !text.contains("$ref") && !text.contains("$schema"), "{text}");
    assert_eq!((&*tool.spec().name, tool.spec().mode), ("weather", ToolMode::Direct));
}

/// The result is the JSON of what the function returns.
#[tokio::test]
async fn the_result_is_what_the_function_returns() {
    let given = [json!({ "city": "Paris" }), json!({ "city": "Paris", "place": { "north": 48.9 } })];
    let expected = [
        (ToolOutcome::Ok, json!({ "celsius": 21.5, "at": null })),
        (ToolOutcome::Ok, json!({ "celsius": 21.5, "at": 48.9 })),
    ];
    assert_eq!(results(vec![weather_tool()], "weather", &given).await, expected);
}

/// Arguments that do not fit give the model an error that names the field, and the function is not called.
#[tokio::test]
async fn wrong_arguments_name_their_field() {
    let wrong = [
        (json!({}), "city"),
        (json!({ "city": 7 }), "city"),
        (json!({ "city": "Paris", "country": "France" }), "country"),
        (json!({ "city": "Paris", "place": { "north": "far" } }), "place.north"),
        (json!({ "city": "Paris", "place": { "north": 1.0, "south": 2.0 } }), "place.south"),
        (json!({ "city": "Paris", "place": {} }), "north"),
        (json!("Paris"), "no JSON object"),
        (json!(["Paris"]), "no JSON object"),
    ];
    let given: Vec<_> = wrong.iter().map(|(given, _)| given.clone()).collect();
    let outcomes = results(vec![weather_tool()], "weather", &given).await;
    for ((outcome, output), (given, field)) in outcomes.iter().zip(&wrong) {
        let text = output.as_str().unwrap();
        assert_eq!(*outcome, ToolOutcome::Error, "{given}: {text}");
        assert!(text.contains(field) && text.contains("tool weather was not called"), "{given}: {text}");
    }
}

/// An error of the function is the error that the model is given, and a panic ends the call alone.
#[tokio::test]
async fn errors_and_panics_end_the_call_alone() {
    let given = [json!({ "city": "Nowhere" }), json!({ "city": "Atlantis" }), json!({ "city": "Paris" })];
    let outcomes = results(vec![weather_tool()], "weather", &given).await;
    assert_eq!(outcomes[0], (ToolOutcome::Error, json!("no weather is known for Nowhere")));
    assert_eq!(outcomes[1].0, ToolOutcome::Error);
    assert!(outcomes[1].1.as_str().unwrap().contains("panicked"), "{:?}", outcomes[1]);
    assert_eq!(outcomes[2].0, ToolOutcome::Ok);
}

/// A closure is a tool too, beside others; what it captured serves every call.
#[tokio::test]
async fn a_closure_beside_others_is_a_tool() {
    #[derive(Deserialize, JsonSchema)]
    struct Nothing {}
    let greeting = "hello".to_owned();
    let greet = move |_: Nothing, context: ToolContext| {
        let text = format!("{greeting}, {}", context.call);
        async move { Ok::<_, String>(text) }
    };
    let tools = vec![weather_tool(), tool("greet", "Greets.", greet)];
    let expected = [(ToolOutcome::Ok, json!("hello, c0")), (ToolOutcome::Ok, json!("hello, c1"))];
    assert_eq!(results(tools, "greet", &[json!({}), json!({})]).await, expected);
}

/// A function that a person must allow is called after that, once.
#[tokio::test]
async fn a_confirmed_function_waits_for_consent() {
    let paris = RawJson::of(&json!({ "city": "Paris" })).unwrap();
    let model = ScriptedProvider::new([Turn::new().call("c", "weather", paris), Turn::new().text("warm")]);
    let chat = chat(vec![weather_tool().with_mode(ToolMode::Confirm)], model).await;
    let report = chat.prompt("go").await.unwrap().finish().await.unwrap();
    let RunOutcome::Awaiting(action) = report.outcome else { panic!("{report:?}") };
    assert_eq!(calls(&chat).await[0].1, [], "it is not called yet");
    let run = chat.answer_and_run(ToolConfirmation::new(action.id, Decision::Allow)).await.unwrap();
    assert_eq!(run.finish().await.unwrap().text, "warm");
    assert_eq!(calls(&chat).await[0].1[0].outcome, ToolOutcome::Ok);
}

/// Two tools of one name are refused when the agent is built, and so are arguments that are no object.
#[test]
fn bad_tools_are_refused_at_build() {
    let refused = |tools: Vec<Tool>| {
        let model = ScriptedProvider::new([]);
        let builder = AgentBuilder::new().with_llm(model);
        let builder = tools.into_iter().fold(builder, AgentBuilder::with_tool);
        builder.with_storage(MemoryStore::new()).build().unwrap_err().to_string()
    };
    let twice = refused(vec![weather_tool(), weather_tool()]);
    assert!(twice.contains("tool weather is offered twice"), "{twice}");
    let text = refused(vec![tool("echo", "Repeats.", |text: String, _| async { Ok::<_, String>(text) })]);
    assert!(text.contains("tool echo") && text.contains("object"), "{text}");
}

/// Nobody is asked about a call whose arguments are wrong: the model gets an error at once, and calls again.
#[tokio::test]
async fn wrong_arguments_are_refused_before_consent() {
    let call = |id: &str, city: Value| {
        Turn::new().call(id, "weather", RawJson::of(&json!({ "city": city })).unwrap())
    };
    let model =
        ScriptedProvider::new([call("1", json!(7)), call("2", json!("Paris")), Turn::new().text("warm")]);
    let chat = chat(vec![weather_tool().with_mode(ToolMode::Confirm)], model).await;
    let report = chat.prompt("go").await.unwrap().finish().await.unwrap();
    let RunOutcome::Awaiting(action) = report.outcome else { panic!("{report:?}") };
    assert_eq!(action.id.as_str(), "2", "the first call was put to nobody");
    let answer = ToolConfirmation::new(action.id, Decision::Allow);
    assert_eq!(chat.answer_and_run(answer).await.unwrap().finish().await.unwrap().text, "warm");
    let outcomes: Vec<_> = calls(&chat).await.into_iter().map(|(_, results)| results[0].outcome).collect();
    assert_eq!(outcomes, [ToolOutcome::Error, ToolOutcome::Ok]);
}

/// A picture and a file of a function are blobs of the session. A model that takes pictures has the bytes with the result, in each later
/// request and after a restart; one that does not has a line with the name.
async fn media_of_a_function_are_given_to_the_model(site: Site) {
    let name = site.name;
    let picture = || [&b"\x89PNG\r\n\x1a\n"[..], &[7; 99_992]].concat();
    let shoot = tool_for_output("shoot", "Takes a picture.", move |_: Nothing, _| async move {
        let cat = Part::Image(Media::inline("image/png", picture()).with_name("cat.png"));
        let film = Part::Video(Media::inline("video/mp4", vec![1; 2_000]).with_name("cat.mp4"));
        Ok::<_, String>(ToolOutput::new(RawJson::sure(&"A cat.")).with_part(cat).with_part(film))
    });
    let turns = || [Turn::new().call("c", "shoot", RawJson::empty_object()), Turn::new().text("A cat.")];
    let is_line = |part: &Part, line: &str| matches!(part, Part::Text { text: Some(text), .. } if text.starts_with(line));
    for takes in [true, false] {
        let kinds = if takes { &[MediaKind::Image][..] } else { &[] };
        let takes_kinds = ModelCapabilities::new().with_media(kinds.iter().copied());
        let model = ScriptedProvider::new(turns().into_iter().chain([Turn::new().text("Yes.")]))
            .with_capabilities(takes_kinds);
        let site = Site::new(name).await;
        let started = |storage: Storage| {
            let builder = AgentBuilder::new().with_llm(model.clone()).with_tool(shoot.clone());
            builder.with_storage(storage).build().unwrap()
        };
        let chat = started(site.open().await).conversation("key").await.unwrap();
        ask(&chat, "Look").await;
        let result = calls(&chat).await.remove(0).1.remove(0);
        assert_eq!(result.output.get(), "\"A cat.\"", "{name}");
        for (part, bytes) in result.content.iter().zip([100_000, 2_000]) {
            let media = part.media().unwrap();
            assert!(
                matches!(media.source, MediaSource::Blob { bytes: stored, .. } if stored == bytes),
                "{name}"
            );
            assert_eq!(chat.media_bytes(media, 1 << 20).await.unwrap().len() as u64, bytes, "{name}");
        }
        let again = started(site.open().await).conversation("key").await.unwrap();
        ask(&again, "Sure?").await;
        for request in &model.requests()[1..] {
            let ModelMessage::ToolResults(results) = &request.messages[2] else { panic!("{request:?}") };
            let [cat, film] = &results[0].content[..] else { panic!("{results:?}") };
            match takes {
                true => assert_eq!(
                    *cat,
                    Part::Image(Media::inline("image/png", picture()).with_name("cat.png")),
                    "{name}"
                ),
                false => assert!(is_line(cat, "[image cat.png, image/png, 98 KiB]"), "{name}: {cat:?}"),
            }
            assert!(is_line(film, "[video cat.mp4, video/mp4, 2 KiB]"), "{name}: {film:?}");
        }
    }
}

each_store!(media_of_a_function_are_given_to_the_model and files);
