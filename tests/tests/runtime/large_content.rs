//! Large content that becomes blobs by itself: outputs of tools above their preview, and media of messages and answers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_admin::copy::StoreCopy;
use agent_core::commit::{Commit, Committed};
use agent_core::event::{
    Event, EventPayload, EventType, Media, MediaSource, Message, Part, ToolOutcome, ToolResult,
};
use agent_core::json::RawJson;
use agent_core::model::{Access, Patch};
use agent_core::state::Reason;
use agent_core::store::{BlobQuery, BlobStore, BlobStoreWrapper, PutBlob, SessionStoreWrapper, SweepBlobs};
use agent_core::{
    BlobName, Error, ErrorKind, MemoryStore, Result, SessionId, SessionStore, Storage, WorkspaceId,
    WriteOutcome, async_trait,
};
use agent_runtime::context::{AgentItem, ItemContent, Messages, ModelMessage};
use agent_runtime::secrets::{Secret, SecretName, Secrets};
use agent_runtime::{
    AgentBuilder, AgentRuntime, Config, Conversation, Input, ModelPart, OnStoreError, Plugin, RunOutcome,
    ScriptedProvider, ToolContext, ToolMode, ToolPolicy, ToolSpec, Turn,
};
use agent_tests::{Site, each_store};
use bytes::Bytes;
use futures::{StreamExt, stream};

use crate::common::dying::Dying;
use crate::common::{NoBlobs, agent_with, calls, check_log, json, log, read};

const MIB: usize = 1 << 20;
const PAGE: usize = 32 << 10;
const DEADLINE: Duration = Duration::from_secs(240);

/// Tools whose outputs are as the model asks.
#[derive(Debug)]
struct Tools;

#[async_trait]
impl Plugin for Tools {
    fn name(&self) -> &str {
        "tools"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        vec![ToolSpec::new("list", "lists"), ToolSpec::new("measure", "").with_mode(ToolMode::Outside)]
    }

    async fn call(&self, _: &str, input: RawJson, context: ToolContext) -> Result<RawJson> {
        let bytes: usize = input.to().unwrap_or(0);
        if bytes == 0 {
            let name: SecretName = "key".parse().unwrap();
            let value = context.secret(&name).await?;
            return RawJson::of(&format!("{}{}{}", "x".repeat(50_000), value.expose(), "y".repeat(50_000)));
        }
        RawJson::of(&listing(bytes))
    }
}

/// A text of about so many bytes, in which every place looks different and characters have one to four bytes.
fn listing(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 64);
    for line in 0.. {
        if text.len() >= bytes {
            break;
        }
        text.push_str(&format!("{line}: é한🙂\n"));
    }
    text
}

fn page(output: BlobName, offset: usize) -> RawJson {
    json(&format!(r#"{{"output":"{output}","offset":{offset}}}"#))
}

fn runtime(storage: &Storage, model: &ScriptedProvider) -> AgentRuntime {
    agent_with(storage, model.clone(), Config::default(), [Arc::new(Tools) as _])
}

async fn ask(chat: &Conversation, text: impl Into<Input>) -> String {
    let run = chat.prompt(text).await.unwrap();
    tokio::time::timeout(DEADLINE, read(run)).await.expect("the run ends").0
}

/// The results of the last message of a request.
fn results(messages: &Messages) -> Vec<String> {
    let Some(ModelMessage::ToolResults(results)) = messages.last() else {
        panic!("no results: {messages:?}")
    };
    results.iter().map(|result| result.output.clone()).collect()
}

async fn blobs(storage: &Storage, id: SessionId) -> Vec<u64> {
    let page = storage.sessions.blobs().list(BlobQuery::new(id).with_limit(1000)).await.unwrap();
    page.items.iter().map(|blob| blob.bytes).collect()
}

async fn output_of(chat: &Conversation, result: &ToolResult) -> Vec<u8> {
    chat.output_content(result).await.unwrap().into_bytes(64 * MIB).await.unwrap().to_vec()
}

fn largest(events: &[Event]) -> usize {
    events.iter().map(|event| event.to_json().len()).max().unwrap()
}

/// A large output is a blob beside its preview, which shows the model how to read on; a restart, a fork and a copy of the
/// store have the whole.
async fn output_above_its_preview_is_a_blob(site: Site) {
    let (store, storage) = (site.name, site.open().await);
    let text = listing(10 * MIB);
    let (name, total) = (BlobName::of(text.as_bytes()), text.len());
    let head = text.floor_char_boundary(PAGE / 2);
    let middle = (5 * MIB..).find(|at| !text.is_char_boundary(*at)).unwrap();
    let model = ScriptedProvider::new([
        Turn::new().call("make", "list", RawJson::of(&(10 * MIB)).unwrap()),
        Turn::new().call("head", "read_output", page(name, head)).call(
            "middle",
            "read_output",
            page(name, middle),
        ),
        Turn::new().call("end", "read_output", page(name, total - 10)),
        Turn::new().text("Read."),
        Turn::new().call("again", "read_output", page(name, head)),
        Turn::new().text("Read again."),
    ]);
    let chat = runtime(&storage, &model).conversation("key").await.unwrap();
    assert_eq!(ask(&chat, "List all.").await, "Read.", "{store}");

    let result = calls(&chat).await[0].1[0].clone();
    let full = result.full.as_ref().expect("the whole is beside it");
    assert_eq!((full.sha256, full.bytes, &full.text), (Some(name), total as u64, &None), "{store}");
    assert!(largest(&log(&chat).await) < 2 * PAGE, "{store}: the log stays small");
    assert_eq!(output_of(&chat, &result).await, text.as_bytes(), "{store}");
    let part = chat.output_range(&result, 100..200).await.unwrap().into_bytes(100).await.unwrap();
    assert_eq!(part, text.as_bytes()[100..200], "{store}");

    let requests = model.requests();
    let shown = &results(&requests[1].messages)[0];
    let mark = format!("read them with read_output: output {name}, offset {head} …]");
    assert!(shown.contains(&mark) && shown.len() < PAGE + 400, "{store}: {}", &shown[head - 10..head + 300]);
    let pages = results(&requests[2].messages);
    let end = text.floor_char_boundary(head + PAGE - 160);
    let expected =
        format!("[bytes {head} to {end} of {total}; read on at offset {end}]\n{}", &text[head..end]);
    assert!(pages[0] == expected, "{store}: {}", &pages[0][..200]);
    let from = text.floor_char_boundary(middle);
    assert!(pages[1].starts_with(&format!("[bytes {from} to ")), "{store}: {}", &pages[1][..100]);
    assert!(pages[1].len() <= PAGE, "{store}");
    let last = &results(&requests[3].messages)[0];
    assert!(
        last.contains("; this is the end]\n") && last.ends_with(&text[text.ceil_char_boundary(total - 10)..]),
        "{store}: {last}"
    );
    assert!(
        requests.iter().all(|request| request.tools == requests[0].tools),
        "{store}: the tools are stable"
    );
    assert_eq!(blobs(&storage, chat.id()).await, [total as u64], "{store}: pages make no blobs");

    // After a restart, in a fork.
    let again = if store == "memory" { storage.clone() } else { site.open().await };
    let agent = runtime(&again, &model);
    let fork = agent.conversation_by_id(chat.id()).await.unwrap().fork(None).await.unwrap();
    assert_eq!(output_of(&fork, &result).await, text.as_bytes(), "{store}");
    assert_eq!(ask(&fork, "Once more.").await, "Read again.", "{store}");
    let requests = model.requests();
    assert!(results(&requests[5].messages)[0] == expected, "{store}: the fork reads it");
    let first = |request: usize| requests[request].messages.iter().take(5);
    assert!(first(4).eq(first(3)), "{store}: it is given the same");

    let target: Storage = MemoryStore::new().into();
    let report = StoreCopy::new(storage.clone(), target.clone()).run().await.unwrap();
    assert_eq!(blobs(&target, chat.id()).await, [total as u64], "{store}: {report:?}");
    let copied = runtime(&target, &model).conversation_by_id(chat.id()).await.unwrap();
    assert_eq!(output_of(&copied, &result).await, text.as_bytes(), "{store}");
    assert_eq!(storage.sessions.blobs().sweep(SweepBlobs::of(chat.id())).await.unwrap().blobs, 0, "{store}");
    check_log(&chat).await;
}
each_store!(output_above_its_preview_is_a_blob and files);

/// Page after page gives the whole text, with characters of each size.
#[tokio::test]
async fn pages_of_an_output_are_the_whole() {
    let storage: Storage = MemoryStore::new().into();
    let text = listing(100_000);
    let name = BlobName::of(text.as_bytes());
    let (mut turns, mut offset, mut ends) = (Vec::new(), 0, Vec::new());
    turns.push(Turn::new().call("make", "list", json("100000")));
    while offset < text.len() {
        turns.push(Turn::new().call(&format!("c{offset}"), "read_output", page(name, offset)));
        let end = text.floor_char_boundary((offset + PAGE - 160).min(text.len()));
        ends.push(offset..end);
        offset = end;
    }
    turns.push(Turn::new().text("Read."));
    let model = ScriptedProvider::new(turns);
    let chat = runtime(&storage, &model).conversation("key").await.unwrap();
    assert_eq!(ask(&chat, "List all.").await, "Read.");
    let mut whole = String::new();
    for (n, range) in ends.iter().enumerate() {
        let given = results(&model.requests()[n + 2].messages).remove(0);
        let (head, text) = given.split_once('\n').unwrap();
        assert!(head.starts_with(&format!("[bytes {} to {} of ", range.start, range.end)), "{head}");
        whole.push_str(text);
    }
    assert!(whole == text, "{} of {} bytes", whole.len(), text.len());
}

/// Wrong arguments get a result that says what to give; a host can leave the tool out.
#[tokio::test]
async fn wrong_pages_are_answered_clearly() {
    let storage: Storage = MemoryStore::new().into();
    let text = listing(50_000);
    let (name, cat) = (BlobName::of(text.as_bytes()), vec![0x89; 5000]);
    let unknown = BlobName::of(b"unknown");
    let cases = [
        (json(r#"{"output":"make","offset":0}"#), "give the 64 digits"),
        (json(r#"{"output":"make"}"#), "missing field `offset`"),
        (page(unknown, 0), "this conversation has no output"),
        (page(name, text.len()), "give an offset below that"),
        (page(BlobName::of(&cat), 0), "is no text"),
        (json(&format!(r#"{{"output":"{name}","offset":0,"bytes":1}}"#)), "[bytes 0 to 6"),
    ];
    let mut turns = vec![Turn::new().call("make", "list", json("50000"))];
    for (n, (input, _)) in cases.iter().enumerate() {
        turns.push(Turn::new().call(&format!("c{n}"), "read_output", input.clone()));
    }
    turns.push(Turn::new().text("Well."));
    turns.push(Turn::new().text("Well."));
    let model = ScriptedProvider::new(turns);
    let chat = runtime(&storage, &model).conversation("key").await.unwrap();
    ask(&chat, Message::new("Look.").with_part(Part::Image(Media::inline("image/png", cat)))).await;
    for (n, (_, expected)) in cases.iter().enumerate() {
        let given = results(&model.requests()[n + 2].messages).remove(0);
        assert!(given.contains(expected), "{n}: {given}");
    }

    for config in [
        Config::default().with_read_outputs(false),
        Config::default().with_tool_policy("read_output", ToolPolicy::Deny),
    ] {
        let model = ScriptedProvider::new([
            Turn::new().call("make", "list", json("50000")),
            Turn::new().text("Well."),
        ]);
        let agent = agent_with(&storage, model.clone(), config, [Arc::new(Tools) as _]);
        ask(&agent.conversation("other").await.unwrap().fork(None).await.unwrap(), "List all.").await;
        let request = &model.requests()[1];
        assert!(request.tools.iter().all(|tool| tool.name != "read_output"));
        assert!(results(&request.messages)[0].contains(" bytes left out …]"));
    }
}

fn image(seed: u8, bytes: usize) -> Part {
    let mut picture = b"\x89PNG\r\n\x1a\n".to_vec();
    picture.resize(bytes, seed);
    Part::Image(Media::inline("image/png", picture).with_name(format!("{seed}.png")))
}

/// The media of a log: whether they are blobs, and their sizes.
fn media_of(events: &[Event]) -> Vec<(bool, u64)> {
    let mut found = Vec::new();
    for event in events {
        let parts = match event.decode().unwrap() {
            EventPayload::UserMessage(message) | EventPayload::AgentMessage(message) => message.parts,
            EventPayload::AgentPart(part) => vec![part.content],
            EventPayload::AgentToolResult(result) | EventPayload::UserCustomToolResult(result) => {
                result.content
            }
            _ => continue,
        };
        for media in parts.iter().filter_map(Part::media) {
            let is_blob = matches!(media.source, MediaSource::Blob { .. });
            found.push((is_blob, media.source.size_bytes().unwrap()));
        }
    }
    found
}

/// Media of messages, answers and results from outside become blobs above 1 KiB, and the model that signed an answer is
/// given the same as before, also after a restart.
async fn media_above_1_kib_are_blobs(site: Site) {
    let (store, storage) = (site.name, site.open().await);
    let turn = || {
        let drawn = ModelPart::part(image(2, 200_000));
        Turn::new().signed_thinking("hm").part(drawn).signed_call("m", "measure", json("{}"))
    };
    let model = ScriptedProvider::new([
        turn(),
        Turn::new().text("Seen."),
        Turn::new().text("Again."),
        Turn::new().text("Still."),
    ])
    .with_account("team-a");
    let chat = runtime(&storage, &model).conversation("key").await.unwrap();
    let pictures = Message::new("Look").with_part(image(1, 300_000)).with_part(image(3, 1024));
    let report = chat.prompt(pictures).await.unwrap().finish().await.unwrap();
    let RunOutcome::Awaiting(_) = report.outcome else { panic!("{store}: {report:?}") };
    let measured =
        ToolResult::new("m".parse().unwrap(), ToolOutcome::Ok, RawJson::of(&listing(100_000)).unwrap())
            .with_part(image(4, 1025));
    read(chat.answer_and_run(measured).await.unwrap()).await;
    ask(&chat, "And now?").await;

    let events = log(&chat).await;
    assert_eq!(media_of(&events), [(true, 300_000), (false, 1024), (true, 200_000), (true, 1025)], "{store}");
    assert!(largest(&events) < 2 * PAGE, "{store}");
    let result = calls(&chat).await[0].1[0].clone();
    assert_eq!(output_of(&chat, &result).await, listing(100_000).as_bytes(), "{store}");
    assert_eq!(blobs(&storage, chat.id()).await.len(), 4, "{store}");
    let again = if store == "memory" { storage.clone() } else { site.open().await };
    ask(&runtime(&again, &model).conversation_by_id(chat.id()).await.unwrap(), "Still?").await;

    let requests = model.requests();
    for (before, after) in requests.iter().zip(&requests[1..]) {
        assert!(after.messages.starts_with(&before.messages), "{store}: a request begins as the one before");
    }
    let last = &requests[3].messages;
    let given: Vec<_> = last
        .iter()
        .flat_map(|message| match message {
            ModelMessage::User(content) => content.parts.clone(),
            ModelMessage::ToolResults(results) => {
                results.iter().flat_map(|result| result.content.clone()).collect()
            }
            _ => Vec::new(),
        })
        .filter(|part| part.media().is_some())
        .collect();
    assert!(given == [image(1, 300_000), image(3, 1024), image(4, 1025)], "{store}");
    let ModelMessage::Agent(message) = &last[1] else { panic!("{store}") };
    assert_eq!(
        message.items.iter().filter(|item| item.native.is_some()).count(),
        2,
        "{store}: what it signed is given back"
    );
    check_log(&chat).await;
}
each_store!(media_above_1_kib_are_blobs and files);

/// A commit names at most 64 blobs: of a message with more media the largest are blobs, and an answer ends there.
#[tokio::test]
async fn a_65th_medium_has_a_named_limit() {
    let storage: Storage = MemoryStore::new().into();
    let many =
        (0..70).fold(Turn::new().text("Many:"), |turn, seed| turn.part(ModelPart::part(image(seed, 2000))));
    let model = ScriptedProvider::new([Turn::new().text("Seen."), many, Turn::new().text("Well.")]);
    let chat = runtime(&storage, &model).conversation("key").await.unwrap();
    let pictures = (0..70)
        .fold(Message::new("Look"), |message, seed| message.with_part(image(seed, 2000 + usize::from(seed))));
    assert_eq!(ask(&chat, pictures).await, "Seen.");
    let media = media_of(&log(&chat).await);
    assert_eq!(media.iter().filter(|(is_blob, _)| *is_blob).count(), 64);
    assert!(media.iter().all(|(is_blob, bytes)| *is_blob == (*bytes >= 2006)), "{media:?}");

    let report = chat.prompt("Draw.").await.unwrap().finish().await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Completed(Reason::MaxOutput));
    let media = media_of(&log(&chat).await);
    assert_eq!(media[70..].len(), 64, "the answer is kept up to there");
    assert!(media[70..].iter().all(|(is_blob, _)| *is_blob));
    assert_eq!(ask(&chat, "Well?").await, "Well.");
}

/// A store whose blobs are removed before a commit, or which says nothing of the first one.
#[derive(Debug)]
struct Swept {
    store: MemoryStore,
    sweeps: AtomicUsize,
    /// Number of commits whose outcome is unknown, and which are not applied.
    in_doubt: AtomicUsize,
    commits: AtomicUsize,
}

impl Swept {
    fn new(sweeps: usize) -> Self {
        let (in_doubt, commits) = (0.into(), 0.into());
        Self { store: MemoryStore::new(), sweeps: sweeps.into(), in_doubt, commits }
    }

    fn storage(self) -> (Arc<Self>, Storage) {
        let store = Arc::new(self);
        let under: Storage = store.store.clone().into();
        (store.clone(), Storage::new(under.workspaces, store, under.bindings))
    }
}

fn takes(count: &AtomicUsize) -> bool {
    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

#[async_trait]
impl SessionStoreWrapper for Swept {
    fn inner(&self) -> &dyn SessionStore {
        &self.store
    }

    async fn commit(&self, commit: Commit) -> Result<Committed> {
        self.commits.fetch_add(1, Ordering::SeqCst);
        if takes(&self.in_doubt) {
            return Err(Error::new(ErrorKind::Unavailable, "no answer, says the test")
                .with_outcome(WriteOutcome::Unknown));
        }
        if takes(&self.sweeps) {
            self.store.blobs().sweep(SweepBlobs::of(commit.session)).await?;
        }
        self.store.commit(commit).await
    }
}

/// Blobs that are removed before the commit that names them are put again, a bounded number of times.
#[tokio::test]
async fn a_swept_blob_is_put_again() {
    let (store, storage) = Swept::new(0).storage();
    let model = ScriptedProvider::new([Turn::new().text("Seen."), Turn::new().text("Seen.")]);
    let chat = runtime(&storage, &model).conversation("key").await.unwrap();
    store.sweeps.store(3, Ordering::SeqCst);
    let pictures = || Message::new("Look").with_part(image(1, 5000));
    assert_eq!(ask(&chat, pictures()).await, "Seen.");

    let head = chat.refresh().await.unwrap().head;
    store.sweeps.store(1000, Ordering::SeqCst);
    let before = store.commits.load(Ordering::SeqCst);
    let error = chat.prompt(Message::new("Look").with_part(image(2, 5000))).await.unwrap_err();
    let ErrorKind::BlobMissing { .. } = error.kind() else { panic!("{error}") };
    assert_eq!(error.write_outcome(), WriteOutcome::NotApplied);
    assert_eq!(store.commits.load(Ordering::SeqCst) - before, 4, "a bounded number of times");
    store.in_doubt.store(1, Ordering::SeqCst);
    let error = chat.prompt(Message::new("Look").with_part(image(3, 5000))).await.unwrap_err();
    let ErrorKind::BlobMissing { .. } = error.kind() else { panic!("{error}") };
    assert_eq!(error.write_outcome(), WriteOutcome::Unknown, "an earlier attempt may be applied");
    assert_eq!(chat.refresh().await.unwrap().head, head);
    store.sweeps.store(0, Ordering::SeqCst);
    assert_eq!(ask(&chat, pictures()).await, "Seen.");
}

/// In a store without blobs everything stays in the events, and what does not fit there is a result that says so.
#[tokio::test]
async fn a_store_without_blobs_keeps_content_inline() {
    let storage = NoBlobs::storage();
    let model = ScriptedProvider::new([
        Turn::new().call("a", "list", json("100000")).call("b", "list", RawJson::of(&(17 * MIB)).unwrap()),
        Turn::new().text("Well."),
    ]);
    let chat = runtime(&storage, &model).conversation("key").await.unwrap();
    assert_eq!(ask(&chat, Message::new("Look").with_part(image(1, 5000))).await, "Well.");
    let made = calls(&chat).await;
    let full = made[0].1[0].full.as_ref().unwrap();
    assert_eq!((full.text.as_deref(), full.sha256), (Some(&*listing(100_000)), None));
    assert_eq!(output_of(&chat, &made[0].1[0]).await, listing(100_000).as_bytes());
    assert_eq!(made[1].1[0].outcome, ToolOutcome::Error);
    assert!(made[1].1[0].output.get().contains("more than the"), "{}", made[1].1[0].output.get());
    assert_eq!(media_of(&log(&chat).await), [(false, 5000)]);
    let requests = model.requests();
    assert!(requests[0].tools.iter().all(|tool| tool.name != "read_output"));
    assert!(results(&requests[1].messages)[0].contains(" bytes left out …]"));
}

/// A store that is away: neither blobs nor commits are taken.
#[derive(Debug)]
struct Away {
    under: Arc<dyn SessionStore>,
    /// Number of commits until it is back.
    left: AtomicUsize,
}

fn away() -> Error {
    Error::new(ErrorKind::Full, "it is away, says the test").with_outcome(WriteOutcome::NotApplied)
}

#[async_trait]
impl SessionStoreWrapper for Away {
    fn inner(&self) -> &dyn SessionStore {
        &*self.under
    }

    async fn commit(&self, commit: Commit) -> Result<Committed> {
        if takes(&self.left) { Err(away()) } else { self.under.commit(commit).await }
    }

    fn blobs(&self) -> &dyn BlobStore {
        self
    }
}

#[async_trait]
impl BlobStoreWrapper for Away {
    fn inner(&self) -> &dyn BlobStore {
        self.under.blobs()
    }

    async fn put(&self, put: PutBlob) -> Result<()> {
        if self.left.load(Ordering::SeqCst) > 0 { Err(away()) } else { self.under.blobs().put(put).await }
    }
}

/// A run that goes on without its store keeps the content, and puts it when the store is back.
async fn a_run_without_its_store_keeps_content(site: Site) {
    let (store, under) = (site.name, site.open().await);
    let sessions = Arc::new(Away { under: under.sessions.store().clone(), left: 0.into() });
    let storage = Storage::new(under.workspaces.clone(), sessions.clone(), under.bindings.clone());
    let gate = agent_runtime::Gate::new();
    let drawn = ModelPart::part(image(1, 5000));
    let model = ScriptedProvider::new([
        Turn::new().text("I list.").gate(&gate).part(drawn).call("a", "list", json("100000")),
        Turn::new().text("Done."),
    ]);
    let config = Config::default().with_on_store_error(OnStoreError::Continue);
    let agent = agent_with(&storage, model.clone(), config, [Arc::new(Tools) as _]);
    let chat = agent.conversation("key").await.unwrap();
    let mut run = chat.prompt("List all.").await.unwrap();
    crate::common::until_text(&mut run).await;
    sessions.left.store(2, Ordering::SeqCst);
    gate.open();
    let report = tokio::time::timeout(DEADLINE, read(run)).await.expect("the run ends").1;
    assert!(report.stored, "{store}: {report:?}");
    let given = format!("{:?}", model.requests()[1].messages);
    assert!(given.contains("Inline(5000 bytes)"), "{store}: the model is given it all the same: {given}");
    let result = calls(&chat).await[0].1[0].clone();
    assert_eq!(output_of(&chat, &result).await, listing(100_000).as_bytes(), "{store}");
    assert_eq!(media_of(&log(&chat).await), [(true, 5000)], "{store}");
    check_log(&chat).await;
}
each_store!(a_run_without_its_store_keeps_content and files);

/// A process that dies at any call of the store leaves at most blobs that a sweep removes, and the conversation goes on.
async fn death_at_any_step_leaves_nothing_wrong(site: Site) {
    let (store, storage) = (site.name, site.open().await);
    let turns = || [Turn::new().call("a", "list", json("40000")), Turn::new().text("Done.")];
    let pictures = |seed| Message::new("Look").with_part(image(seed, 5000));
    for applied in [false, true] {
        for step in 0.. {
            let dying = Dying::new(&storage);
            let model = ScriptedProvider::new(turns());
            let agent = runtime(&dying.storage(&storage), &model);
            let chat = agent.conversation(&format!("{applied}/{step}")).await.unwrap();
            dying.die_in(step, applied);
            if let Ok(run) = chat.prompt(pictures(1)).await {
                drop(tokio::time::timeout(DEADLINE, run.finish()).await.expect("the run ends"));
            }
            let is_dead = dying.is_dead();
            drop(agent);
            let model = ScriptedProvider::new((0..4).flat_map(|_| turns()));
            let config = Config::default().with_lease_ttl(Duration::from_millis(50));
            let agent = agent_with(&storage, model.clone(), config, [Arc::new(Tools) as _]);
            let chat = agent.conversation_by_id(chat.id()).await.unwrap();
            let now = chat.refresh().await.unwrap();
            if let Some(lease) = &now.lease {
                let expired = agent_core::commit::Trigger::LeaseExpired(now.epoch);
                let commit = Commit::seal(agent.effects(), chat.id(), now.head).with_trigger(expired);
                storage
                    .sessions
                    .commit(commit)
                    .await
                    .unwrap_or_else(|error| panic!("{store}: {lease:?}: {error}"));
                chat.refresh().await.unwrap();
            }
            let report = tokio::time::timeout(DEADLINE, chat.ask(pictures(2))).await.expect("an answer");
            assert_eq!(report.unwrap().text, "Done.", "{store} {step}");
            storage.sessions.blobs().sweep(SweepBlobs::of(chat.id())).await.unwrap();
            let mut named: Vec<_> = log(&chat).await.into_iter().flat_map(|event| event.blobs).collect();
            named.sort_unstable();
            named.dedup();
            assert_eq!(
                blobs(&storage, chat.id()).await.len(),
                named.len(),
                "{store} {step}: no orphan is left"
            );
            for (_, results) in calls(&chat).await {
                for result in results.iter().filter(|result| result.outcome == ToolOutcome::Ok) {
                    assert_eq!(output_of(&chat, result).await, listing(40_000).as_bytes(), "{store} {step}");
                }
            }
            check_log(&chat).await;
            if !is_dead {
                // The second request of the run reads no blob again.
                assert!(step > 7, "{store}: it died at each of the {step} calls before");
                break;
            }
        }
    }
}
each_store!(death_at_any_step_leaves_nothing_wrong and files);

fn part_of(item: AgentItem) -> Option<Part> {
    if let ItemContent::Part(part) = item.content { Some(part) } else { None }
}

const VALUE: &str = "correct-horse-battery-staple";

fn assert_nowhere(folder: &Path) -> usize {
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            files += assert_nowhere(&entry.path());
        } else {
            let bytes = std::fs::read(entry.path()).unwrap();
            let is_there = bytes.windows(VALUE.len()).any(|window| window == VALUE.as_bytes());
            assert!(!is_there, "{} holds the value", entry.path().display());
            files += 1;
        }
    }
    files
}

/// The value of a secret reaches no file of the store: not by outputs, not by media that are text, not by streams in which it
/// is divided.
async fn secrets_reach_no_blob(site: Site) {
    let (store, storage) = (site.name, site.open().await);
    let name: SecretName = "key".parse().unwrap();
    let secrets = Secrets::new(BTreeMap::from([(name.clone(), Secret::new(VALUE).unwrap())]));
    let note = |text: String| Part::Resource(Media::inline("text/plain", text.into_bytes()));
    let long = || format!("{}{VALUE}{}", "a".repeat(3000), "b".repeat(3000));
    let model = ScriptedProvider::new([
        Turn::new().part(ModelPart::part(note(long()))).call("a", "list", json("0")),
        Turn::new().text("Done."),
        Turn::new().text("Done."),
    ]);
    let agent = AgentBuilder::new()
        .with_llm(model.clone())
        .with_storage(storage.clone())
        .with_plugin(Tools)
        .with_secrets(secrets.clone())
        .build()
        .unwrap();
    let chat = agent.conversation("key").await.unwrap();
    chat.update(Patch::new().mount(name.resource(), Access::Read)).await.unwrap();
    secrets.reveal(WorkspaceId::DEFAULT, &name).await.unwrap();
    assert_eq!(
        ask(&chat, Message::new("Look").with_part(note(long())).with_part(note(VALUE.to_owned()))).await,
        "Done."
    );

    let put = chat.put_media("application/json", long()).await.unwrap();
    let divided = || {
        let pieces: Vec<_> =
            long().into_bytes().chunks(7).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        stream::iter(pieces).boxed()
    };
    let streamed = chat.put_media_stream("text/plain", divided()).await.unwrap();
    let info = agent_core::store::BlobInfo::of(long().as_bytes());
    let known = chat.put_media_content("text/plain", info, divided()).await.unwrap();
    let shown = long().replace(VALUE, "(secret key)");
    for media in [&put, &streamed, &known] {
        assert_eq!(chat.media_bytes(media, MIB).await.unwrap(), shown, "{store}");
    }
    ask(&chat, Message::new("Keep").with_part(Part::Resource(streamed))).await;

    let direct = PutBlob::of_bytes(chat.id(), long());
    let error = agent.storage().sessions.blobs().put(direct).await.unwrap_err();
    assert!(
        *error.kind() == ErrorKind::InvalidInput && error.to_string().contains("secret key"),
        "{store}: {error}"
    );
    let mut picture = b"\x89PNG\0".to_vec();
    picture.extend_from_slice(&long().into_bytes()[..3000]);
    drop(chat.put_media("image/png", picture).await.unwrap());

    let result = calls(&chat).await[0].1[0].clone();
    let output = output_of(&chat, &result).await;
    assert_eq!(output.len(), 100_000 + "(secret key)".len(), "{store}");
    for event in log(&chat).await {
        assert!(!event.to_json().contains(VALUE), "{store}");
        let is_answer = event.kind == EventType::AGENT_PART;
        if let (true, EventPayload::AgentPart(part)) = (is_answer, event.decode().unwrap()) {
            let bytes = chat.media_bytes(part.content.media().unwrap(), MIB).await.unwrap();
            assert_eq!(bytes, shown, "{store}");
        }
    }
    // The model is given what the log has, also within the run.
    let mut given = 0;
    for message in model.requests().into_iter().flat_map(|request| request.messages) {
        let parts: Vec<_> = match message {
            ModelMessage::User(content) => content.parts,
            ModelMessage::Agent(message) => message.items.into_iter().filter_map(part_of).collect(),
            _ => Vec::new(),
        };
        for media in parts.iter().filter_map(Part::media) {
            let MediaSource::Inline(bytes) = &media.source else { panic!("{store}: {media:?}") };
            let text = std::str::from_utf8(bytes).unwrap();
            assert!(!text.contains(VALUE) && text.contains("(secret key)"), "{store}");
            given += 1;
        }
    }
    assert_eq!(given, 2 + 3 + 4, "{store}");
    agent.close().await.unwrap();
    assert!(assert_nowhere(site.folder.path()) > 0 || store == "memory", "{store}");
}
each_store!(secrets_reach_no_blob and files);
