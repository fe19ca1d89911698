//! Requests that a provider refuses, for a picture or for the length of the history: they cost one request and not the
//! session.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use agent_core::commit::Commit;
use agent_core::event::{
    AgentResponse, EventPayload, EventType, Media, MediaSource, Message, ModelOrigin, NewEvent, Part,
};
use agent_core::json::RawJson;
use agent_core::{Result, SessionId, SessionStoreExt, Storage, async_trait};
use agent_runtime::context::{Content, ContextLimits, Messages, ModelMessage};
use agent_runtime::{
    AgentRuntime, Config, Conversation, FaultKind, Input, LlmProvider, ModelCapabilities, ModelRequest,
    ModelStream, Plugin, ProviderFault, RunError, ScriptedProvider, ToolContext, ToolOutput, ToolSpec, Turn,
};
use agent_tests::{Site, each_store};

use crate::common::{agent_with, check_log, log};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Picture that looks like one, and that the model refuses.
fn broken(name: &str, bytes: usize) -> Part {
    let bytes = [PNG, name.as_bytes(), &vec![7; bytes], b"cut"].concat();
    Part::Image(Media::inline("image/png", bytes).with_name(name))
}

fn good(name: &str) -> Part {
    Part::Image(Media::inline("image/png", [PNG, name.as_bytes()].concat()).with_name(name))
}

/// Model that signs its items, and refuses what servers refuse: broken pictures, empty texts, long requests, a word.
#[derive(Clone, Debug)]
struct Picky {
    scripted: ScriptedProvider,
    rules: Arc<Rules>,
}

#[derive(Debug, Default)]
struct Rules {
    /// Maximum bytes of the messages; 0 for no maximum.
    most: AtomicUsize,
    /// The server answers everything with 400, or with "too long".
    is_down: AtomicBool,
    is_full: AtomicBool,
    /// Word that the server does not take.
    word: Mutex<Option<&'static str>>,
    /// Requests that were answered.
    accepted: Mutex<Vec<ModelRequest>>,
    refused: AtomicUsize,
    /// Where somebody else writes while the model answers.
    others: Mutex<Option<(Storage, AgentRuntime, SessionId)>>,
    /// Turns for the next requests; then there are texts.
    turns: Mutex<Vec<Turn>>,
}

impl Picky {
    fn new(name: &str) -> Self {
        let scripted = ScriptedProvider::new([]).with_name(name).with_account("team-a");
        Self { scripted, rules: Arc::default() }
    }

    fn accepted(&self) -> Vec<ModelRequest> {
        self.rules.accepted.lock().unwrap().clone()
    }

    fn refused(&self) -> usize {
        self.rules.refused.load(Ordering::SeqCst)
    }

    fn refusal(&self, request: &ModelRequest) -> Option<FaultKind> {
        let rules = &*self.rules;
        let size: usize = request.messages.iter().map(ModelMessage::size_bytes).sum();
        let most = rules.most.load(Ordering::SeqCst);
        if rules.is_full.load(Ordering::SeqCst) || (most > 0 && size > most) {
            return Some(FaultKind::ContextTooLong);
        }
        let is_broken = |part: &Part| match part {
            Part::Image(media) => match &media.source {
                MediaSource::Inline(bytes) => !bytes.starts_with(PNG) || bytes.ends_with(b"cut"),
                _ => true,
            },
            Part::Text { text, .. } => text.as_ref().is_none_or(|text| text.trim().is_empty()),
            _ => false,
        };
        let word = *rules.word.lock().unwrap();
        let is_broken = parts(&request.messages).iter().any(is_broken)
            || word.is_some_and(|word| request.messages.iter().any(|message| message.text().contains(word)));
        (is_broken || rules.is_down.load(Ordering::SeqCst)).then_some(FaultKind::InvalidRequest)
    }
}

fn parts(messages: &Messages) -> Vec<Part> {
    let of = |message: &ModelMessage| match message {
        ModelMessage::User(Content { parts, .. }) => parts.clone(),
        ModelMessage::ToolResults(results) => {
            results.iter().flat_map(|result| result.content.clone()).collect()
        }
        _ => Vec::new(),
    };
    messages.iter().flat_map(of).collect()
}

fn texts(request: &ModelRequest) -> String {
    request.messages.iter().map(|message| message.text().into_owned()).collect::<Vec<_>>().join("\n")
}

fn pictures(request: &ModelRequest) -> usize {
    parts(&request.messages).iter().filter(|part| matches!(part, Part::Image(_))).count()
}

#[async_trait]
impl LlmProvider for Picky {
    fn name(&self) -> &str {
        self.scripted.name()
    }

    fn model(&self) -> &str {
        self.scripted.model()
    }

    fn capabilities(&self) -> ModelCapabilities {
        self.scripted.capabilities()
    }

    fn origin(&self) -> Option<ModelOrigin> {
        self.scripted.origin()
    }

    async fn generate(&self, request: ModelRequest) -> Result<ModelStream> {
        if let Some(kind) = self.refusal(&request) {
            self.rules.refused.fetch_add(1, Ordering::SeqCst);
            return Err(ProviderFault::new(kind, "the server answered 400").into());
        }
        let turn = self.rules.turns.lock().unwrap().pop();
        self.scripted.push(turn.unwrap_or_else(|| Turn::new().signed_thinking("hm").text("so")));
        let others = self.rules.others.lock().unwrap().take();
        if let Some((storage, runtime, session)) = others {
            let head = storage.sessions.load(session).await.unwrap().head;
            let commit = Commit::seal(runtime.effects(), session, head);
            let commit = commit.with_event(NewEvent::user_message("by the way"));
            storage.sessions.commit_new_with_retry(commit).await.unwrap();
        }
        let stream = self.scripted.generate(request.clone()).await?;
        self.rules.accepted.lock().unwrap().push(request);
        Ok(stream)
    }
}

/// Tool whose result is a picture that the model refuses.
#[derive(Debug)]
struct Camera;

#[async_trait]
impl Plugin for Camera {
    fn name(&self) -> &str {
        "camera"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        ["shoot", "scan", "note"].map(|name| ToolSpec::new(name, "takes something")).into()
    }

    async fn call_for_output(&self, tool: &str, _: RawJson, _: ToolContext) -> Result<ToolOutput> {
        let output = ToolOutput::new(RawJson::of(&"A picture.")?);
        Ok(output.with_part(match tool {
            "shoot" => broken("shot.png", 10),
            "note" => Part::text("Noted."),
            _ => Part::Image(Media::inline("image/png", *b"\xff\xd8\xff\xe0 a JPEG").with_name("scan.png")),
        }))
    }
}

fn start(storage: &Storage, model: &Picky) -> AgentRuntime {
    agent_with(storage, model.clone(), Config::new(), [Arc::new(Camera) as _])
}

async fn ask(chat: &Conversation, message: impl Into<Input>) {
    chat.prompt(message).await.unwrap().finish().await.unwrap();
}

async fn fails(chat: &Conversation, message: impl Into<Input>) -> FaultKind {
    match chat.prompt(message).await.unwrap().finish().await {
        Err(RunError::Failed(report)) => report.fault().unwrap(),
        other => panic!("it is refused: {other:?}"),
    }
}

async fn of_kind(chat: &Conversation, kind: EventType) -> Vec<RawJson> {
    let events = log(chat).await;
    events.iter().filter(|event| event.kind == kind).map(|event| event.payload.clone()).collect()
}

/// Each request begins with the messages of the one before.
fn check_prefixes(requests: &[ModelRequest]) {
    for pair in requests.windows(2) {
        assert!(pair[1].messages.starts_with(&pair[0].messages), "{pair:#?}");
    }
}

fn natives(request: &ModelRequest) -> usize {
    let items = request.messages.iter().filter_map(|message| match message {
        ModelMessage::Agent(message) => Some(&message.items),
        _ => None,
    });
    items.flatten().filter(|item| item.native.is_some()).count()
}

async fn a_refused_picture_is_left_out_for_good(site: Site) {
    let model = Picky::new("one");
    let chat = start(&site.open().await, &model).conversation("key").await.unwrap();
    ask(&chat, "Hello").await;
    ask(&chat, Message::new("This one?").with_part(good("first.png"))).await;
    // As a blob and inline.
    let two =
        Message::new("What is this?").with_part(broken("cat.png", 5000)).with_part(broken("dog.png", 1));
    ask(&chat, two).await;
    assert_eq!(model.refused(), 1, "{}", site.name);
    ask(&chat, "And now?").await;
    ask(&chat, Message::new("And this?").with_part(good("last.png"))).await;
    // The next process, and a fork, know what is refused.
    let agent = start(&site.open().await, &model);
    let chat = agent.conversation_by_id(chat.id()).await.unwrap();
    ask(&chat, "Go on.").await;
    let fork = chat.fork(None).await.unwrap();
    ask(&fork, "Go on there.").await;
    assert_eq!(model.refused(), 1, "{}: each later request leaves it out", site.name);
    let requests = model.accepted();
    check_prefixes(&requests);
    assert_eq!(requests.iter().map(pictures).collect::<Vec<_>>(), [0, 1, 1, 1, 2, 2, 2]);
    assert_eq!(requests.iter().map(natives).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6], "no item is lost");
    let shown = texts(&requests[6]);
    for line in ["[image cat.png, image/png, 5 KiB]", "[image dog.png, image/png, 19 bytes]"] {
        assert!(shown.contains(&format!("{line} (left out: the provider refused it)")), "{shown}");
    }
    let responses = of_kind(&chat, EventType::AGENT_RESPONSE).await;
    let marked: Vec<_> = responses.iter().map(|one| one.get().contains(r#""left_out":[""#)).collect();
    assert_eq!(marked, [false, false, true, true, true, true], "{responses:?}");
    check_log(&chat).await;
    // Another model may take it; it refuses it once, too.
    let other = Picky::new("two");
    let chat = start(&site.open().await, &other).conversation_by_id(chat.id()).await.unwrap();
    ask(&chat, "You?").await;
    ask(&chat, "Really?").await;
    assert_eq!((other.refused(), other.accepted().len()), (1, 2), "{}", site.name);
    check_prefixes(&other.accepted());
}
each_store!(a_refused_picture_is_left_out_for_good and files);

async fn a_refused_picture_of_a_tool_is_left_out(site: Site) {
    let model = Picky::new("one");
    let call = |id: &str, tool: &str| Turn::new().signed_call(id, tool, RawJson::empty_object());
    *model.rules.turns.lock().unwrap() = vec![call("b", "shoot"), call("a", "shoot")];
    let chat = start(&site.open().await, &model).conversation("key").await.unwrap();
    ask(&chat, "Show me.").await;
    // The second call gave the same picture.
    assert_eq!((model.refused(), model.accepted().len()), (1, 3), "{}", site.name);
    let chat = start(&site.open().await, &model).conversation_by_id(chat.id()).await.unwrap();
    ask(&chat, "Again.").await;
    assert_eq!((model.refused(), model.accepted().len()), (1, 4), "{}", site.name);
    check_prefixes(&model.accepted());
    check_log(&chat).await;
}
each_store!(a_refused_picture_of_a_tool_is_left_out and files);

/// In a long run, a summary takes the place of the answer that first went without the picture, and not of the picture.
async fn a_summary_does_not_bring_a_refused_picture_back(site: Site) {
    for account in [Some("team-a"), None] {
        let mut model = Picky::new("one");
        if account.is_none() {
            // A model without an origin.
            model.scripted = ScriptedProvider::new([]).with_name("one");
        }
        let call = |n: usize| Turn::new().call(&format!("c{n}"), "note", RawJson::empty_object());
        *model.rules.turns.lock().unwrap() = (0..30).map(call).collect();
        let config = Config::new().with_context_limits(ContextLimits::new(12, 1 << 20));
        let storage = site.open().await;
        let agent = agent_with(&storage, model.clone(), config, [Arc::new(Camera) as _]);
        let chat = agent.conversation(&format!("key {account:?}")).await.unwrap();
        ask(&chat, "Hello").await;
        ask(&chat, Message::new("Note it often.").with_part(broken("cat.png", 10))).await;
        ask(&chat, "And now?").await;
        assert!(compactions(&chat).await > 2, "{}: {account:?}", site.name);
        assert_eq!(model.refused(), 1, "{}: {account:?}", site.name);
        check_log(&chat).await;
    }
}
each_store!(a_summary_does_not_bring_a_refused_picture_back and files);

/// A history over its limits is given in part; what the log says was accepted was not.
async fn a_picture_that_was_never_given_does_no_harm(site: Site) {
    let model = Picky::new("one");
    let storage = site.open().await;
    let agent = start(&storage, &model);
    let chat = agent.conversation("key").await.unwrap();
    model.rules.is_down.store(true, Ordering::SeqCst);
    fails(&chat, Message::new("What is this?").with_part(broken("cat.png", 10))).await;
    model.rules.is_down.store(false, Ordering::SeqCst);
    // Another program answers, and does not say to what.
    let head = chat.refresh().await.unwrap().head;
    let origin = model.origin().unwrap();
    let answer = [
        NewEvent::agent_message("A cat."),
        NewEvent::of(&EventPayload::AgentResponse(AgentResponse::new(head).with_origin(origin))),
    ];
    let commit = Commit::seal(agent.effects(), chat.id(), head).with_events(answer);
    storage.sessions.commit_new_with_retry(commit).await.unwrap();
    for text in ["And now?", "And on?"] {
        ask(&chat, text).await;
    }
    check_prefixes(&model.accepted());
    check_log(&chat).await;
}
each_store!(a_picture_that_was_never_given_does_no_harm);

async fn pictures_are_left_out_only_if_that_helps(site: Site) {
    let model = Picky::new("one");
    let chat = start(&site.open().await, &model).conversation("key").await.unwrap();
    ask(&chat, "Hello").await;
    model.rules.is_down.store(true, Ordering::SeqCst);
    for text in ["What is this?", "And now?"] {
        let asked = Message::new(text).with_part(good("cat.png"));
        assert_eq!(fails(&chat, asked).await, FaultKind::InvalidRequest, "{}", site.name);
    }
    model.rules.is_down.store(false, Ordering::SeqCst);
    ask(&chat, "Now?").await;
    assert_eq!(pictures(model.accepted().last().unwrap()), 2, "{}", site.name);
    let events = log(&chat).await;
    let is_marked = |payload: &RawJson| payload.get().contains("left_out");
    assert!(!events.iter().any(|event| is_marked(&event.payload)), "{}", site.name);
    assert!(!events.iter().any(|event| event.kind == EventType::SESSION_COMPACTED), "{}", site.name);
}
each_store!(pictures_are_left_out_only_if_that_helps);

/// Types and kinds of the media in the log.
async fn media(chat: &Conversation) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for event in log(chat).await {
        let parts = match event.decode().unwrap() {
            EventPayload::UserMessage(message) => message.parts,
            EventPayload::AgentToolResult(result) => result.content,
            _ => continue,
        };
        let of = |part: &Part| Some((part.tag().into_owned(), part.media()?.media_type.clone()));
        found.extend(parts.iter().filter_map(of));
    }
    found
}

async fn media_have_the_type_that_their_bytes_show(site: Site) {
    let model = Picky::new("one");
    let call = Turn::new().call("a", "scan", RawJson::empty_object());
    model.rules.turns.lock().unwrap().push(call);
    model.rules.is_down.store(true, Ordering::SeqCst);
    let chat = start(&site.open().await, &model).conversation("key").await.unwrap();
    let image = |media: &str, bytes: &[u8]| Part::Image(Media::inline(media, bytes));
    let cases: [(&str, &[u8], &str, &str); 9] = [
        ("image/png", PNG, "image", "image/png"),
        ("image/jpeg", PNG, "image", "image/png"),
        ("image/png", b"\xff\xd8\xff\xe1", "image", "image/jpeg"),
        ("image/png", b"GIF89a", "image", "image/gif"),
        ("IMAGE/GIF; x=y", b"RIFF\0\0\0\0WEBPVP8 ", "image", "image/webp"),
        ("image/png", b"\0\0\0\x18ftypheic\0\0\0\0", "image", "image/heic"),
        ("image/png", b"<?xml version=\"1.0\"?>\n<svg xmlns=\"x\"/>", "image", "image/svg+xml"),
        ("image/png", b"Not found", "resource", "text/plain"),
        ("image/webp", b"\x01\x02\x03", "resource", "application/octet-stream"),
    ];
    let mut expected = Vec::new();
    for (declared, bytes, kind, media_type) in cases {
        fails(&chat, Message::new("?").with_part(image(declared, bytes))).await;
        expected.push((kind.to_owned(), media_type.to_owned()));
    }
    // Blobs that were put before.
    let large = [&b"\xff\xd8\xff\xe1"[..], &[7; 5000]].concat();
    let photo = chat.put_media("image/png", large.clone()).await.unwrap();
    assert_eq!(photo.media_type, "image/jpeg");
    let text = chat.put_media("image/png", "words ".repeat(1000)).await.unwrap();
    let content =
        futures::stream::iter(large.chunks(3).map(|piece| Ok(piece.to_vec().into())).collect::<Vec<_>>());
    let streamed = chat.put_media_stream("image/png", Box::pin(content)).await.unwrap();
    assert_eq!((streamed.source.size_bytes(), &*streamed.media_type), (Some(5004), "image/jpeg"));
    for part in [photo, text, streamed] {
        fails(&chat, Message::new("?").with_part(Part::Image(part))).await;
    }
    for (kind, media_type) in [("image", "image/jpeg"), ("resource", "text/plain"), ("image", "image/jpeg")] {
        expected.push((kind.to_owned(), media_type.to_owned()));
    }
    assert_eq!(media(&chat).await, expected, "{}", site.name);
    model.rules.is_down.store(false, Ordering::SeqCst);
    chat.clear().await.unwrap();
    // Of a tool; a JPEG is refused by this model, too.
    ask(&chat, "Scan it.").await;
    assert_eq!(media(&chat).await.last().unwrap().1, "image/jpeg", "{}", site.name);
}
each_store!(media_have_the_type_that_their_bytes_show and files);

async fn compactions(chat: &Conversation) -> usize {
    of_kind(chat, EventType::SESSION_COMPACTED).await.len()
}

async fn a_smaller_model_is_asked_until_it_fits(site: Site) {
    let model = Picky::new("one");
    let chat = start(&site.open().await, &model).conversation("key").await.unwrap();
    for n in 0..30 {
        ask(&chat, format!("{n} {}", "words ".repeat(50))).await;
    }
    // An eighth of what it took before.
    model.rules.most.store(1300, Ordering::SeqCst);
    let before = model.accepted().len();
    for (n, storage) in [site.open().await, site.open().await].iter().enumerate() {
        let chat = start(storage, &model).conversation_by_id(chat.id()).await.unwrap();
        ask(&chat, format!("Go on, {n}.")).await;
    }
    assert_eq!(compactions(&chat).await, 1, "{}: only what was accepted is kept", site.name);
    assert!(model.refused() <= 5, "{}: {}", site.name, model.refused());
    check_prefixes(&model.accepted()[before..]);
    let last = model.accepted().pop().unwrap();
    assert!(natives(&last) >= 1, "{}: {last:#?}", site.name);
    check_log(&chat).await;
}
each_store!(a_smaller_model_is_asked_until_it_fits and files);

/// What others write between the request and its compaction stands behind the answer.
async fn a_shorter_request_is_the_beginning_of_the_next(site: Site) {
    let (model, storage) = (Picky::new("one"), site.open().await);
    let agent = start(&storage, &model);
    let chat = agent.conversation("key").await.unwrap();
    for n in 0..10 {
        ask(&chat, format!("{n} {}", "words ".repeat(50))).await;
    }
    model.rules.most.store(1300, Ordering::SeqCst);
    *model.rules.others.lock().unwrap() = Some((storage.clone(), agent.clone(), chat.id()));
    let before = model.accepted().len();
    ask(&chat, "Go on.").await;
    ask(&chat, "And on.").await;
    check_prefixes(&model.accepted()[before..]);
    assert!(texts(model.accepted().last().unwrap()).contains("by the way"));
    assert_eq!(compactions(&chat).await, 1, "{}", site.name);
    check_log(&chat).await;
}
each_store!(a_shorter_request_is_the_beginning_of_the_next and files);

async fn refused_requests_leave_no_summary(site: Site) {
    let model = Picky::new("one");
    let chat = start(&site.open().await, &model).conversation("key").await.unwrap();
    for n in 0..10 {
        ask(&chat, n.to_string()).await;
    }
    for (rule, kind, most) in [
        (&model.rules.is_down, FaultKind::InvalidRequest, 2),
        (&model.rules.is_full, FaultKind::ContextTooLong, 8),
    ] {
        rule.store(true, Ordering::SeqCst);
        let before = model.refused();
        assert_eq!(fails(&chat, "Go on.").await, kind, "{}", site.name);
        let asked = model.refused() - before;
        assert!(asked > 1 && asked <= most, "{}: {kind} after {asked} requests", site.name);
        rule.store(false, Ordering::SeqCst);
    }
    assert_eq!(compactions(&chat).await, 0, "{}", site.name);
    ask(&chat, "Go on.").await;
    assert!(texts(model.accepted().last().unwrap()).starts_with("0\n"), "{}: nothing is left out", site.name);
    // A model that never accepted anything is asked once.
    let fresh = Picky::new("two");
    fresh.rules.is_down.store(true, Ordering::SeqCst);
    let chat = start(&site.open().await, &fresh).conversation_by_id(chat.id()).await.unwrap();
    fails(&chat, "Go on.").await;
    assert_eq!((fresh.refused(), compactions(&chat).await), (1, 0), "{}", site.name);
}
each_store!(refused_requests_leave_no_summary and files);

async fn an_invalid_request_is_tried_once_with_half(site: Site) {
    let model = Picky::new("one");
    let chat = start(&site.open().await, &model).conversation("key").await.unwrap();
    for text in ["One", "the word hologram", "Three", "Four", "Five", "Six"] {
        ask(&chat, text).await;
    }
    // The server was updated.
    *model.rules.word.lock().unwrap() = Some("hologram");
    let before = model.accepted().len();
    ask(&chat, Message::new("Seven").with_part(broken("cat.png", 1))).await;
    assert_eq!(model.refused(), 2, "{}", site.name);
    ask(&chat, "Eight").await;
    assert_eq!((model.refused(), compactions(&chat).await), (2, 1), "{}", site.name);
    check_prefixes(&model.accepted()[before..]);
    check_log(&chat).await;
}
each_store!(an_invalid_request_is_tried_once_with_half and files);
