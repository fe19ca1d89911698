//! One model call of a run: sends the request and forwards the streamed answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep, timeout};
use tracing::{Instrument, info, warn};

use crate::agent::runtime::Shared;
use crate::context::{Messages, ModelContext};
use crate::model::event::{ModelEvent, ModelPart, PartContent, PartKind, StopReason};
use crate::model::fault::{FaultKind, ProviderFault};
use crate::model::media::load_media;
use crate::model::options::Effort;
use crate::model::provider::{LlmProvider, ModelRequest, ModelStream};
use crate::model::replay::{Given, ModelTarget, SeenMedia};
use crate::model::request::{choose, fit};
use crate::model::retry::pause_before_retry;
use crate::run::limit::{LimitKind, ReachedLimit};
use crate::run::report::Update;
use crate::run::stop::Stopped;
use crate::run::telemetry::{ChatEnd, Target, chat_span, record_chat};
use crate::turn::answer_limits::{Full, Room};
use crate::turn::parts::{Parts, ReceivedPart, Refused};
use crate::turn::state::Driver;
use agent_core::event::{ModelOrigin, Part};
use agent_core::isolated::{Isolated, called, isolated};
use agent_core::model::Usage;
use agent_core::{Error, Result, Seq};
use agent_workspace::secrets::Pieces;
use agent_workspace::secrets::Secrets;

/// Signs of life in a row after which a stream counts as silent.
const PINGS_MAX: u32 = 10_000;

/// Times of the allowed silence after which a stream of signs of life counts as silent.
const PINGS_SILENCES: u32 = 8;

/// Result of one model call.
pub(super) struct Answer {
    /// Parts, in the provider's order.
    pub(super) parts: Vec<ReceivedPart>,
    pub(super) end: AnswerEnd,
    pub(super) asked: Asked,
    /// True if the answer did not begin, so that another request can be made in its place.
    pub(super) may_retry: bool,
    /// True if the provider has accepted the request: the answer has begun.
    pub(super) has_begun: bool,
}

/// Request to which an answer belongs.
#[derive(Default)]
pub(super) struct Asked {
    /// Last event on which the request was built.
    pub(super) after: Seq,
    /// Hash of what the model was given.
    pub(super) given: Option<String>,
    pub(super) origin: Option<ModelOrigin>,
    /// True if the request had no native items because the provider had refused some.
    pub(super) is_canonical: bool,
    pub(super) media: SeenMedia,
    /// True if the provider has answered a request of the session before.
    pub(super) has_answered: bool,
}

/// State of a model call while its answer streams.
struct Listening {
    parts: Parts,
    text: Pieces,
    thinking: Pieces,
    /// Pieces of numbered parts.
    numbered: BTreeMap<u32, (PartKind, Pieces)>,
    /// Part to which the last piece belongs that was forwarded.
    shown: Option<u32>,
    /// Number of parts that the readers know.
    known: u32,
    usage: Usage,
    /// Time of the request.
    asked: Instant,
    /// Time between the request and the first event of the answer.
    first: Option<Duration>,
    /// True until the answer begins, or the provider was silent for too long.
    may_retry: bool,
    /// Time of the last event that was more than a sign of life.
    heard: Instant,
    /// Signs of life since then.
    pings: u32,
}

impl Listening {
    fn new() -> Self {
        Self {
            parts: Parts::default(),
            text: Pieces::default(),
            thinking: Pieces::default(),
            numbered: BTreeMap::new(),
            shown: None,
            known: 0,
            usage: Usage::default(),
            asked: Instant::now(),
            first: None,
            may_retry: true,
            heard: Instant::now(),
            pings: 0,
        }
    }

    /// Returns the pieces of a numbered part, or of the parts of a kind that have no number.
    fn pieces(&mut self, index: Option<u32>, kind: PartKind) -> &mut Pieces {
        match (index, kind) {
            (Some(index), _) => &mut self.numbered.entry(index).or_insert((kind, Pieces::default())).1,
            (None, PartKind::Reasoning) => &mut self.thinking,
            (None, _) => &mut self.text,
        }
    }

    /// Returns the end as the span of the call records it.
    fn end<'a>(&self, end: &'a AnswerEnd) -> ChatEnd<'a> {
        let (finish, error) = match end {
            AnswerEnd::Done(StopReason::EndTurn) if self.parts.has_call() => ("tool_call", None),
            AnswerEnd::Done(StopReason::EndTurn | StopReason::StopSequence) => ("stop", None),
            AnswerEnd::Done(StopReason::MaxTokens) | AnswerEnd::Full(_) => ("length", None),
            AnswerEnd::Done(StopReason::Refusal) => ("content_filter", None),
            AnswerEnd::Stopped(Stopped::Asked) => ("error", Some("cancelled")),
            AnswerEnd::Stopped(Stopped::Fenced(error)) => ("error", Some(error.kind().name())),
            AnswerEnd::Failed(error) => {
                let fault = ProviderFault::of(error).map(|fault| fault.kind.name());
                ("error", Some(fault.unwrap_or(error.kind().name())))
            }
        };
        ChatEnd { finish, usage: self.usage, first: self.first, error }
    }
}

pub(super) enum AnswerEnd {
    Done(StopReason),
    /// The answer reached a limit and was dropped there.
    Full(Full),
    Stopped(Stopped),
    Failed(Error),
}

impl AnswerEnd {
    /// Returns whether the answer is not complete.
    pub(super) const fn is_cut(&self) -> bool {
        !matches!(self, Self::Done(stop) if stop.is_complete())
    }

    /// Returns the pause that the provider asks for, if its fault is the end.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let Self::Failed(error) = self else { return None };
        ProviderFault::of(error)?.retry_after
    }

    /// Returns the kind of the provider's fault, if that is the end.
    pub(super) fn fault(&self) -> Option<FaultKind> {
        let Self::Failed(error) = self else { return None };
        ProviderFault::of(error).map(|fault| fault.kind)
    }
}

/// Calls the model once, and forwards its answer while it streams.
pub(super) async fn ask(driver: &mut Driver, context: &ModelContext) -> Answer {
    let shared = driver.handle.runtime().shared.clone();
    let settings = &driver.settings;
    let span = chat_span(&Target {
        session: driver.session.id,
        provider: &settings.provider,
        model: shared.model(&settings.provider).unwrap_or_default(),
        max_tokens: settings.limits.max_tokens,
        json: settings.output_schema.is_some(),
    });
    // Made here, so that the parts of the answer have names while they stream.
    let commit = driver.handle.runtime().effects().new_commit_id();
    driver.answer = Some(commit);
    driver.updates.answer().send_modify(|answer| answer.begin(commit, driver.session.head));
    let (mut heard, mut asked) = (Listening::new(), Asked::default());
    let ended = listen(driver, &shared, context, &mut asked, &mut heard).instrument(span.clone()).await;
    let end = ended.map_or_else(|end| end, AnswerEnd::Done);
    driver.usage = driver.usage.plus(heard.usage);
    record_chat(&span, &heard.end(&end));
    show_rest(driver, &mut heard, &end);
    let mut parts = heard.parts.finish(end.is_cut());
    if end.is_cut()
        && let Some(secrets) = secrets(driver)
    {
        hide_beginnings(&mut parts, &secrets);
    }
    Answer { parts, end, asked, may_retry: heard.may_retry, has_begun: heard.first.is_some() }
}

/// Returns the request for the context with the bytes of its media, and what the log says of it.
async fn prepare(
    driver: &mut Driver,
    provider: &Arc<dyn LlmProvider>,
    context: &ModelContext,
) -> Result<(ModelRequest, Asked), AnswerEnd> {
    let target = called(|| ModelTarget::of(&**provider)).ok_or_else(|| {
        fault(
            driver,
            FaultKind::Other,
            "panicked when it was asked for its capabilities, rendering or origin",
        )
    })?;
    let (settings, sessions) = (&driver.settings, driver.handle.runtime().storage().sessions.clone());
    let mut request = ModelRequest {
        system: context.system_or(settings.system_prompt.as_deref()),
        messages: Messages::default(),
        tools: driver.tools.offered(&settings.tool_policies, &*sessions),
        tool_choice: settings.tool_choice.clone(),
        output_schema: settings.output_schema.clone(),
        // A model that reasons could demand the reasoning before its calls.
        effort: if driver.without.native { Some(Effort::Off) } else { settings.effort },
        max_tokens: settings.limits.max_tokens,
    };
    fit(&mut request, &target.capabilities).map_err(|what| fault(driver, FaultKind::InvalidRequest, what))?;
    let target = target.with_system(request.system.clone()).with_tools(request.tools.clone());
    let (mut given, mut further) = Given::of(target, &driver.without, context, driver.given.take());
    load_media(&*sessions, &driver.session, &mut further, &mut given.room).await?;
    given.messages.extend(further);
    request.messages = given.messages.clone();
    choose(&mut request);
    let asked = Asked {
        after: driver.known,
        given: given.hash.hex(),
        origin: given.target.origin.clone(),
        is_canonical: driver.without.native,
        media: given.media.clone(),
        has_answered: given.has_answered,
    };
    driver.given = Some(given);
    Ok((request, asked))
}

/// Changes what the next request has not, if that may help after a fault. Returns whether it did.
fn leave_out(driver: &mut Driver, fault: &ProviderFault, asked: &mut Asked) -> bool {
    let (session, provider) = (driver.session.id, &driver.settings.provider);
    match fault.kind {
        FaultKind::ReplayRejected if !driver.without.native => {
            warn!(%session, provider, "the provider refused its own items; it is asked without them");
            driver.without.native = true;
            true
        }
        FaultKind::InvalidRequest if !asked.media.new.is_empty() => {
            let media = asked.media.new.len();
            warn!(%session, provider, media, "the provider refused a request with new media; it is asked without them");
            driver.without.media.append(&mut asked.media.new);
            true
        }
        _ => false,
    }
}

/// Forwards the text that was held back, if the answer is complete.
fn show_rest(driver: &Driver, heard: &mut Listening, end: &AnswerEnd) {
    let Some(secrets) = secrets(driver) else { return };
    if matches!(end, AnswerEnd::Done(stop) if *stop != StopReason::MaxTokens) {
        let numbered = heard.numbered.iter().map(|(index, (kind, _))| (Some(*index), *kind));
        let all = [(None, PartKind::Reasoning), (None, PartKind::Text)].into_iter().chain(numbered);
        for (index, kind) in all.collect::<Vec<_>>() {
            let rest = heard.pieces(index, kind).rest(&secrets);
            forward(driver, heard, index, kind, rest);
        }
    }
}

/// Cuts from the texts of an incomplete answer what may be the beginning of a secret value, which alone is not recognized
/// and not redacted.
fn hide_beginnings(parts: &mut [ReceivedPart], secrets: &Secrets) {
    for part in parts {
        if let PartContent::Call(call) = &mut part.content
            && let Some(malformed) = &mut call.malformed
        {
            malformed.text.truncate(secrets.complete_prefix(&malformed.text));
        }
        let (PartContent::Text { text, .. }
        | PartContent::Reasoning(text)
        | PartContent::Part(Part::Refusal { text, .. })) = &mut part.content
        else {
            continue;
        };
        let end = secrets.complete_prefix(text);
        if end < text.len() {
            text.truncate(end);
            part.is_done = false;
        }
    }
}

/// Asks until the answer begins, or until a retry does not help.
async fn listen(
    driver: &mut Driver,
    shared: &Shared,
    context: &ModelContext,
    asked: &mut Asked,
    heard: &mut Listening,
) -> Result<StopReason, AnswerEnd> {
    let provider = driver.settings.provider(shared, &driver.session)?.clone();
    let limit = driver.settings.limits.model_retries;
    let mut request;
    (request, *asked) = prepare(driver, &provider, context).await?;
    let mut retries = 0;
    loop {
        let error = match ask_once(driver, &provider, request.clone(), heard).await {
            Err(AnswerEnd::Failed(error)) => error,
            ended => return ended,
        };
        let fault = match ProviderFault::of(&error) {
            Some(fault) if heard.may_retry && leave_out(driver, fault, asked) => {
                (request, *asked) = prepare(driver, &provider, context).await?;
                continue;
            }
            Some(fault) if heard.may_retry && retries < limit && fault.kind.is_retryable() => fault.clone(),
            _ => return Err(AnswerEnd::Failed(error)),
        };
        pause(driver, fault, retries).await?;
        retries += 1;
    }
}

/// Waits before the next request, and tells the readers so.
async fn pause(driver: &mut Driver, fault: ProviderFault, retries: u32) -> Result<(), AnswerEnd> {
    let runtime = driver.handle.runtime();
    let after = pause_before_retry(&fault, runtime.effects(), retries);
    let (session, provider, kind) = (driver.session.id, &driver.settings.provider, fault.kind);
    info!(%session, provider, fault = %kind, ?after, "the model call failed; it is repeated");
    let text = runtime.redact(&fault.text).into_owned();
    driver.send(Update::Retrying { after, fault: ProviderFault { text, said: None, ..fault } });
    tokio::select! {
        biased;
        stopped = &mut driver.stop => Err(AnswerEnd::Stopped(stopped)),
        () = sleep(after) => Ok(()),
    }
}

/// Sends the request once, and reads the answer.
async fn ask_once(
    driver: &mut Driver,
    provider: &Arc<dyn LlmProvider>,
    request: ModelRequest,
    heard: &mut Listening,
) -> Result<StopReason, AnswerEnd> {
    let generate = isolated(|| provider.generate(request));
    let mut stream = Isolated::new(wait_for(driver, heard, generate).await??);
    let end = take(driver, &mut stream, heard).await;
    // Dropped here, so that the provider ends its request before anything else happens.
    match end {
        Ok(_) | Err(AnswerEnd::Full(_)) if !stream.end() => {
            Err(fault(driver, FaultKind::Other, "panicked when its answer was dropped"))
        }
        end => end,
    }
}

/// Reads the stream until it ends or a limit is reached.
async fn take(
    driver: &mut Driver,
    stream: &mut Isolated<ModelStream>,
    heard: &mut Listening,
) -> Result<StopReason, AnswerEnd> {
    let has_blobs = driver.handle.runtime().blob_max_bytes() > 0;
    let mut room = Room::of(&driver.settings.limits, driver.tool_calls, has_blobs);
    loop {
        let next = async { stream.next().await.map_or(Some(None), |it| it.map(Some)) };
        let event = match wait_for(driver, heard, next).await? {
            None => return Err(fault(driver, FaultKind::Network, "ended its answer without a stop reason")),
            Some(event) => event?,
        };
        // A stream that is always ready must not starve other tasks.
        consume_budget().await;
        if event == ModelEvent::Ping {
            heard.pings += 1;
            let silence = driver.settings.limits.model_silence;
            if heard.pings > PINGS_MAX || heard.heard.elapsed() > silence.saturating_mul(PINGS_SILENCES) {
                return Err(silent(driver, heard, "sent only signs of life"));
            }
            continue;
        }
        (heard.may_retry, heard.pings, heard.heard) = (false, 0, Instant::now());
        heard.first.get_or_insert_with(|| heard.asked.elapsed());
        match hear(driver, event, heard, &mut room) {
            Ok(None) => {}
            Ok(Some(stop)) => match heard.parts.unended().filter(|_| stop.is_complete()) {
                None => return Ok(stop),
                Some(part) => {
                    let what = format!("ended its answer before part {part}");
                    return Err(fault(driver, FaultKind::Other, &what));
                }
            },
            Err(Refused::Invalid(what)) => return Err(fault(driver, FaultKind::Other, &what)),
            Err(Refused::Full(full)) => {
                let (session, provider) = (driver.session.id, &driver.settings.provider);
                warn!(%session, provider, limit = %full, "the model's answer reached a limit and was cut there");
                return Err(AnswerEnd::Full(full));
            }
        }
    }
}

/// Adds an event to the answer, and forwards its text. Returns the reason for which the model stopped, if it is the end.
fn hear(
    driver: &Driver,
    event: ModelEvent,
    heard: &mut Listening,
    room: &mut Room,
) -> Result<Option<StopReason>, Refused> {
    let fits = match event {
        ModelEvent::Text(mut piece) => {
            let fits = heard.parts.say(PartKind::Text, &mut piece, room);
            show(driver, heard, None, PartKind::Text, piece);
            fits
        }
        ModelEvent::Thinking(mut piece) => {
            let fits = heard.parts.say(PartKind::Reasoning, &mut piece, room);
            show(driver, heard, None, PartKind::Reasoning, piece);
            fits
        }
        ModelEvent::ToolUse(call) => {
            let waits = driver.waits(&call.name);
            heard.parts.call(call, waits, room)
        }
        ModelEvent::PartStarted { index, kind } => {
            let fits = heard.parts.start(index, kind, room);
            if fits.is_ok() {
                turn_to(driver, heard, index, kind);
            }
            fits
        }
        ModelEvent::Delta { index, text: mut piece } => {
            let (kind, fits) = heard.parts.delta(index, &mut piece, room);
            show(driver, heard, Some(index), kind, piece);
            fits
        }
        ModelEvent::PartDone { index, part } => return part_done(driver, heard, index, *part, room),
        ModelEvent::Usage(usage) => {
            heard.usage = usage;
            // Counts as a piece, so that a stream of nothing else ends.
            room.text(&mut String::new()).map_err(Refused::from)
        }
        ModelEvent::Ping => Ok(()),
        ModelEvent::Done { stop, usage } => {
            heard.usage = usage;
            return Ok(Some(stop));
        }
    };
    fits.map(|()| None)
}

/// Takes a whole part, and forwards what of it the readers do not have: a text without pieces, or another part.
fn part_done(
    driver: &Driver,
    heard: &mut Listening,
    index: u32,
    part: ModelPart,
    room: &mut Room,
) -> Result<Option<StopReason>, Refused> {
    let kind = part.kind();
    let other = match &part.content {
        PartContent::Part(part) if kind == PartKind::Other => Some(driver.redacted_part(part)),
        _ => None,
    };
    let (shown, fits) = heard.parts.done(index, part, |tool| driver.waits(tool), room);
    if let Some((kind, text)) = shown {
        show(driver, heard, Some(index), kind, text);
    }
    fits?;
    // A part that has ended shows its rest before the next one begins.
    if let Some(secrets) = secrets(driver) {
        let rest = heard.pieces(Some(index), kind).rest(&secrets);
        forward(driver, heard, Some(index), kind, rest);
    }
    if heard.known <= index || other.is_some() {
        turn_to(driver, heard, index, kind);
    }
    if let Some(part) = other {
        driver.send(Update::Part(part));
    }
    Ok(None)
}

/// Forwards a piece of the model's output, with the values of secrets redacted.
fn show(driver: &Driver, heard: &mut Listening, index: Option<u32>, kind: PartKind, piece: String) {
    let shown = match secrets(driver) {
        Some(secrets) => heard.pieces(index, kind).push(&secrets, &piece),
        None => piece,
    };
    forward(driver, heard, index, kind, shown);
}

/// Sends the readers a piece, and before it the part to which it belongs. A part that the provider does not number has
/// its place in the answer as its number.
fn forward(driver: &Driver, heard: &mut Listening, index: Option<u32>, kind: PartKind, piece: String) {
    let update = match kind {
        PartKind::Text | PartKind::Refusal => Update::Text,
        PartKind::Reasoning => Update::Thinking,
        PartKind::Call | PartKind::Other => return,
    };
    if piece.is_empty() {
        return;
    }
    if let Some(index) = index.or_else(|| heard.parts.last_of(kind)) {
        turn_to(driver, heard, index, kind);
    }
    driver.send(update(piece));
}

/// Tells the readers the part to which the next pieces belong, if it is another one.
fn turn_to(driver: &Driver, heard: &mut Listening, index: u32, kind: PartKind) {
    if let Some(commit) = driver.answer.filter(|_| heard.shown != Some(index)) {
        heard.shown = Some(index);
        heard.known = heard.known.max(index.saturating_add(1));
        driver.send(Update::PartStarted { commit, index, kind });
    }
}

fn secrets(driver: &Driver) -> Option<Secrets> {
    driver.handle.runtime().secrets.clone()
}

/// Waits for the provider, unless the run must end first. Returns an error if the provider panics or stays silent
/// longer than the configured limit.
async fn wait_for<T>(
    driver: &mut Driver,
    heard: &mut Listening,
    work: impl Future<Output = Option<T>>,
) -> Result<T, AnswerEnd> {
    let silence = driver.settings.limits.model_silence;
    tokio::select! {
        biased;
        stopped = &mut driver.stop => Err(AnswerEnd::Stopped(stopped)),
        done = timeout(silence, work) => match done {
            Ok(Some(done)) => Ok(done),
            Ok(None) => Err(fault(driver, FaultKind::Other, "panicked")),
            Err(_) => {
                // The model may still be at work on the answer, and the limit is the host's own.
                Err(silent(driver, heard, &format!("was silent for {silence:?}")))
            }
        },
    }
}

/// Returns the fault of a provider that was silent for too long.
fn silent(driver: &mut Driver, heard: &mut Listening, what: &str) -> AnswerEnd {
    heard.may_retry = false;
    let silence = u64::try_from(driver.settings.limits.model_silence.as_millis()).unwrap_or(u64::MAX);
    driver.limit = Some(ReachedLimit::new(LimitKind::ModelSilence).with_max(silence));
    fault(driver, FaultKind::Timeout, what)
}

/// Returns a fault that the run itself has found.
fn fault(driver: &Driver, kind: FaultKind, what: &str) -> AnswerEnd {
    let text = format!("provider {} {what}", driver.settings.provider);
    AnswerEnd::Failed(ProviderFault::new(kind, text).into())
}

impl From<Error> for AnswerEnd {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}
