//! Functions as tools: the schema comes from the type of the arguments, which are checked before each call.

use std::fmt::{self, Display};
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::provider::{ToolMode, ToolSpec};
use crate::tool::output::ToolOutput;
use crate::tool::plugin::{Plugin, ToolContext};
use agent_core::json::RawJson;
use agent_core::{Error, ErrorKind, Result};

type Check = dyn Fn(&RawJson) -> Result<()> + Send + Sync;
type Question = dyn Fn(&RawJson) -> Option<String> + Send + Sync;
type Call = dyn Fn(RawJson, ToolContext) -> BoxFuture<'static, Result<ToolOutput>> + Send + Sync;

/// Async function that a model may call as a tool; made by [`tool`] and [`tool_for_output`]. Cloning is cheap.
///
/// A tool is a [`Plugin`] with one tool: [`AgentBuilder::with_tool`](crate::AgentBuilder::with_tool) adds it to an
/// agent.
#[derive(Clone)]
pub struct Tool {
    spec: ToolSpec,
    check: Arc<Check>,
    question: Option<Arc<Question>>,
    call: Arc<Call>,
}

/// Creates a tool that calls an async function with typed arguments.
///
/// The model receives the name, the description and the JSON schema of `T`, in which the doc comments of fields are
/// their descriptions. `T` is a struct with named fields; a struct without fields declares a tool without arguments.
/// This call computes the schema once.
///
/// Arguments are decoded before each call, and before a person is asked for consent. If a field is missing, unknown or
/// of the wrong type, nobody is asked, the function is not called, and the model receives an error that names the field. The model also receives the text of an error that the
/// function returns. A panic ends the call, not the run: see [`Plugin`].
///
/// To derive the schema, a program depends on `serde` only: `#[schemars(crate = "agent_runtime::schemars")]` selects
/// this crate's copy of [`schemars`]. With the facade `agent`, write `"agent::schemars"`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # use agent_core::MemoryStore;
/// # use agent_core::json::RawJson;
/// use agent_runtime::schemars::{self, JsonSchema};
/// use agent_runtime::{AgentBuilder, ScriptedProvider, ToolContext, Turn, tool};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Deserialize, JsonSchema)]
/// #[schemars(crate = "agent_runtime::schemars")]
/// struct City {
///     /// Name of the city.
///     city: String,
/// }
///
/// #[derive(Serialize)]
/// struct Weather {
///     celsius: f32,
/// }
///
/// async fn weather(City { city }: City, _context: ToolContext) -> Result<Weather, String> {
///     match city.as_str() {
///         "Paris" => Ok(Weather { celsius: 21.5 }),
///         _ => Err(format!("no weather is known for {city}")),
///     }
/// }
///
/// let model = ScriptedProvider::new([
///     Turn::new().call("1", "weather", RawJson::parse(r#"{"city":"Paris"}"#)?),
///     Turn::new().text("It is warm in Paris."),
/// ]);
/// let agent = AgentBuilder::new()
///     .with_llm(model)
///     .with_storage(MemoryStore::new())
///     .with_tool(tool("weather", "Current weather of a city.", weather))
///     .build()?;
/// let chat = agent.open(&"laptop".parse()?).await?;
/// assert_eq!(chat.prompt("Paris?").await?.finish().await?.text, "It is warm in Paris.");
/// # Ok(()) }
/// ```
///
/// A function that returns images or files is made a tool by [`tool_for_output`].
pub fn tool<T, R, E, F, Fut>(name: impl Into<String>, description: impl Into<String>, function: F) -> Tool
where
    T: DeserializeOwned + JsonSchema,
    R: Serialize,
    E: Display,
    F: Fn(T, ToolContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send + 'static,
{
    tool_for_output(name, description, move |arguments: T, context| {
        let given = function(arguments, context);
        async move {
            let output = given.await.map_err(|error| error.to_string())?;
            RawJson::of(&output).map(ToolOutput::new).map_err(|error| error.to_string())
        }
    })
}

/// Creates a tool like [`tool`], whose function returns an output with parts, like images and files.
///
/// A medium above 1 KiB becomes a blob of the session, as that of a message does. A model that takes its kind is given the bytes
/// with the result; another one is given a line with the name, the type and the size. The bytes of media count for the limit of an
/// output.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/models.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::event::{Media, Part};
/// use agent_runtime::{ToolContext, ToolOutput, tool_for_output};
///
/// async fn shoot(_: Nothing, _: ToolContext) -> Result<ToolOutput, agent_core::Error> {
///     let picture = Media::inline("image/png", *b"\x89PNG\r\n\x1a\n").with_name("screen.png");
///     Ok(ToolOutput::new(RawJson::of(&"A screenshot.")?).with_part(Part::Image(picture)))
/// }
///
/// let shoot = tool_for_output("shoot", "Takes a screenshot.", shoot);
/// # let (agent, chat) = calling(shoot, "{}", "A window.").await?;
/// use agent_runtime::Update;
///
/// let mut run = chat.prompt("What is on the screen?").await?;
/// while let Some(update) = run.next().await {
///     if let Update::ToolDone(result) = update? {
///         assert_eq!(result.content[0].media().unwrap().name.as_deref(), Some("screen.png"));
///     }
/// }
/// # Ok(()) }
/// ```
pub fn tool_for_output<T, E, F, Fut>(
    name: impl Into<String>,
    description: impl Into<String>,
    function: F,
) -> Tool
where
    T: DeserializeOwned + JsonSchema,
    E: Display,
    F: Fn(T, ToolContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ToolOutput, E>> + Send + 'static,
{
    let name = name.into();
    let (checked, called) = (name.clone(), name.clone());
    let check = move |input: &RawJson| decoded::<T>(&checked, input).map(drop);
    let call = move |input: RawJson, context: ToolContext| {
        let started = decoded(&called, &input).map(|arguments| function(arguments, context));
        async move { started?.await.map_err(|error| Error::new(ErrorKind::Provider, error.to_string())) }
            .boxed()
    };
    let spec = ToolSpec::new(name, description).with_input(schema_of::<T>());
    Tool { spec, check: Arc::new(check), question: None, call: Arc::new(call) }
}

impl Tool {
    /// Returns the name, the description, the schema and the mode that the model receives.
    pub const fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Sets the mode in which calls are made; the default is [`ToolMode::Direct`].
    ///
    /// With [`ToolMode::Confirm`], each call waits until a person allows it.
    #[must_use]
    pub fn with_mode(mut self, mode: ToolMode) -> Self {
        self.spec.mode = mode;
        self
    }

    /// Sets the sentence with which a person is asked about a call, made of the call's arguments; the default is the call
    /// itself, also if the arguments are no `T` of the function. See [`Plugin::question`] for what is stored of it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/models.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_runtime::schemars::{self, JsonSchema};
    /// use agent_runtime::{RunOutcome, ToolContext, ToolMode, tool};
    ///
    /// #[derive(serde::Deserialize, JsonSchema)]
    /// struct Payment {
    ///     to: String,
    ///     euro: u32,
    /// }
    ///
    /// async fn pay(_: Payment, _: ToolContext) -> Result<&'static str, String> {
    ///     Ok("paid")
    /// }
    ///
    /// let pay = tool("pay", "Pays an invoice.", pay)
    ///     .with_mode(ToolMode::Confirm)
    ///     .with_question(|Payment { to, euro }| format!("Pay {euro} EUR to {to}?"));
    /// # let (agent, chat) = calling(pay, r#"{"to":"Acme","euro":120}"#, "").await?;
    /// let report = chat.prompt("Pay the invoice.").await?.finish().await?;
    /// let RunOutcome::Awaiting(action) = report.outcome else { panic!("it needs consent") };
    /// assert_eq!(action.question, "Pay 120 EUR to Acme?");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_question<T: DeserializeOwned>(
        mut self,
        question: impl Fn(T) -> String + Send + Sync + 'static,
    ) -> Self {
        self.question = Some(Arc::new(move |input| input.to().ok().map(&question)));
        self
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").field("spec", &self.spec).finish_non_exhaustive()
    }
}

#[async_trait]
impl Plugin for Tool {
    fn name(&self) -> &str {
        &self.spec.name
    }

    fn tools(&self) -> Vec<ToolSpec> {
        vec![self.spec.clone()]
    }

    fn check_input(&self, _tool: &str, input: &RawJson) -> Result<()> {
        (self.check)(input)
    }

    fn question(&self, _tool: &str, input: &RawJson) -> Option<String> {
        self.question.as_ref()?(input)
    }

    async fn call(&self, tool: &str, input: RawJson, context: ToolContext) -> Result<RawJson> {
        Ok(self.call_for_output(tool, input, context).await?.output)
    }

    async fn call_for_output(&self, _tool: &str, input: RawJson, context: ToolContext) -> Result<ToolOutput> {
        (self.call)(input, context).await
    }
}

/// Returns the schema of a type, without references if possible, because some providers do not resolve them.
fn schema_of<T: JsonSchema>() -> RawJson {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    // The name of the type means nothing to a model.
    schema.remove("title");
    RawJson::sure(&schema)
}

/// Decodes the arguments of a call; the error names the field that is wrong.
pub(crate) fn decoded<T: DeserializeOwned>(tool: &str, input: &RawJson) -> Result<T> {
    if !input.get().starts_with('{') {
        let text =
            format!("tool {tool} was not called: its arguments are no JSON object; name each argument");
        return Err(Error::invalid(text));
    }
    let mut json = serde_json::Deserializer::from_str(input.get());
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut json, &mut track);
    let mut unknown = Vec::new();
    let arguments = serde_ignored::deserialize(tracked, |path| {
        let path = path.to_string();
        // An optional value has a step of its own in the path.
        unknown.push(path.split('.').filter(|step| *step != "?").collect::<Vec<_>>().join("."));
    });
    let wrong = match arguments {
        Ok(arguments) if unknown.is_empty() => return Ok(arguments),
        Ok(_) => format!("unknown field {}", unknown.join(", ")),
        Err(error) => match track.path().to_string() {
            path if path == "." => error.to_string(),
            path => format!("field {path}: {error}"),
        },
    };
    Err(Error::invalid(format!(
        "tool {tool} was not called: {wrong}; correct the arguments by the tool's schema"
    )))
}
