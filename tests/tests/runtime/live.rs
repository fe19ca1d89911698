//! The answer that is being written, for every reader of the process. Each piece comes once, wherever a reader joins, and
//! never after the event that holds it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use crate::common::{Faulty, agent, device, json, log, until_text};
use agent_core::commit::{Commit, Trigger};
use agent_core::event::{Event, EventPayload, EventType, Part};
use agent_core::session::Fork;
use agent_core::{
    Backend, CommitId, MemoryStore, Result, Seq, SessionStoreExt, Storage, TenantId, WorkspaceId, async_trait,
};
use agent_runtime::secrets::{Secret, SecretName, Secrets};
use agent_runtime::{
    AgentBuilder, Config, Conversation, FaultKind, Gate, Live, LlmProvider, ModelEvent, ModelPart,
    ModelRequest, ModelStream, OnStoreError, PartKind, ProviderFault, Run, ScriptedProvider, StopReason,
    Turn, Update, Usage, schemars, tool,
};
use agent_tests::{Site, each_store};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// How long to wait before a test is given up as stuck. Never what a test is about.
const STUCK: Duration = Duration::from_secs(120);

/// Maximum bytes of a piece.
const PIECE_MAX_BYTES: usize = 64 << 10;

/// Name of a part: the commit that holds it, and its number there.
type Name = (CommitId, u32);

type Items = BoxStream<'static, Result<Live>>;

/// What one reader has. Each item is checked against the rules of the stream.
#[derive(Default)]
struct Shown {
    seen: Seq,
    events: Vec<Event>,
    /// Text of each part that is not stored.
    open: BTreeMap<Name, String>,
    /// Text of each part that an event has replaced.
    replaced: Vec<(Name, String)>,
    withdrawn: Vec<CommitId>,
    /// Commits of which no piece may come any more.
    over: BTreeSet<CommitId>,
    /// Events of other commits that came while an answer was open.
    between: usize,
    items: usize,
}

impl Shown {
    fn after(seen: Seq) -> Self {
        Self { seen, ..Self::default() }
    }

    fn take(&mut self, live: Live) {
        self.items += 1;
        match live {
            Live::Event(event) => {
                assert_eq!(event.seq, self.seen.next(), "events come without a gap, each once");
                self.seen = event.seq;
                self.over.insert(event.commit);
                self.between += usize::from(self.open.keys().any(|name| name.0 != event.commit));
                let is_open = |(commit, _): &Name| *commit != event.commit;
                let (open, replaced) =
                    std::mem::take(&mut self.open).into_iter().partition(|(name, _)| is_open(name));
                let replaced: BTreeMap<_, _> = replaced;
                self.open = open;
                self.replaced.extend(replaced);
                self.events.push(*event);
            }
            Live::Part { commit, index, text, .. } => {
                assert!(!self.over.contains(&commit), "a part comes after its event");
                assert!(text.len() <= PIECE_MAX_BYTES, "{} bytes", text.len());
                assert!(self.open.keys().all(|name| name.0 == commit), "two answers are open");
                assert_eq!(self.open.insert((commit, index), text), None, "a part begins twice");
            }
            Live::Piece { commit, index, text, .. } => {
                assert!(!self.over.contains(&commit) && !text.is_empty(), "a piece comes after its event");
                assert!(text.len() <= PIECE_MAX_BYTES, "{} bytes", text.len());
                self.open.get_mut(&(commit, index)).expect("the part has begun").push_str(&text);
            }
            Live::Withdrawn { commit, .. } => {
                assert!(self.open.keys().any(|name| name.0 == commit), "nothing of it is open");
                self.open.retain(|name, _| name.0 != commit);
                self.over.insert(commit);
                self.withdrawn.push(commit);
            }
            other => panic!("{other:?}"),
        }
    }

    /// Reads until `holds`.
    async fn until(&mut self, items: &mut Items, mut holds: impl FnMut(&Self) -> bool) {
        while !holds(self) {
            let live = timeout(STUCK, items.try_next()).await.expect("the reader is stuck");
            self.take(live.unwrap().expect("the stream goes on"));
        }
    }

    /// Checks the events, and the text of each part that an event has replaced: as far as the reader had it, it is what is
    /// stored. Returns the number of parts of which the reader had all.
    fn check(&self, log: &[Event]) -> usize {
        let first = self.seen.get() as usize - self.events.len();
        assert_eq!(self.events, log[first..self.seen.get() as usize]);
        let stored = items(log);
        let replaced = self.replaced.iter().filter(|(name, text)| match stored.get(name) {
            Some(whole) => {
                assert!(whole.starts_with(&**text), "{text:?} is not the beginning of {whole:?}");
                whole == text
            }
            // Blank texts and the reasoning of a cut answer are not stored.
            None => false,
        });
        replaced.count()
    }
}

/// The texts of the items in a log, by the names that the updates of a run give them.
fn items(log: &[Event]) -> BTreeMap<Name, String> {
    let (mut items, mut places) = (BTreeMap::new(), BTreeMap::<_, u32>::new());
    for event in log {
        let (part, text) = match event.decode().unwrap() {
            EventPayload::AgentMessage(message) | EventPayload::AgentThinking(message) => {
                (message.part, message.text)
            }
            EventPayload::AgentPart(item) => match item.content {
                Part::Refusal { text, .. } => (item.part, text),
                _ => (item.part, String::new()),
            },
            EventPayload::AgentToolUse(call) | EventPayload::AgentCustomToolUse(call) => {
                (call.part, String::new())
            }
            _ => continue,
        };
        let place = places.entry(event.commit).or_default();
        items.insert((event.commit, part.unwrap_or(*place)), text);
        *place += 1;
    }
    items
}

/// Numbers that a seed determines.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// Some answers of one run: many small pieces of text and reasoning, calls between the answers, faults before them, and
/// sometimes a fault within the last one.
fn script(random: &mut Random, name: u64) -> Vec<Turn> {
    let mut turns = Vec::new();
    let answers = 1 + random.below(3);
    for answer in 0..answers {
        if random.below(3) == 0 {
            let busy = ProviderFault::new(FaultKind::Overloaded, "too many users");
            turns.push(Turn::fault(busy.with_retry_after(Duration::ZERO)));
        }
        let mut turn = Turn::new();
        for piece in 0..1 + random.below(40) {
            let text = format!("{name}.{answer}.{piece} ");
            turn = match random.below(5) {
                0 => turn.event(ModelEvent::thinking(text)),
                1 => turn.wait(Duration::from_millis(1)).text(text),
                _ => turn.text(text),
            };
        }
        let is_last = answer + 1 == answers;
        turns.push(match random.below(4) {
            _ if !is_last => turn.call(&format!("call-{name}-{answer}"), "nod", json("{}")),
            0 => turn.cut(ProviderFault::new(FaultKind::Network, "the line is cut")),
            _ => turn,
        });
    }
    turns
}

/// Reads with pauses until the session ends with the event that `ended` names, and nothing is open.
async fn reader(
    chat: Conversation,
    after: Seq,
    mut ended: watch::Receiver<Option<Seq>>,
    mut random: Random,
) -> Shown {
    let (mut items, mut shown) = (chat.live(after), Shown::after(after));
    while *ended.borrow_and_update() != Some(shown.seen) {
        let live = tokio::select! {
            live = items.try_next() => live.unwrap().expect("the stream goes on"),
            changed = ended.changed() => { changed.unwrap(); continue }
        };
        shown.take(live);
        match random.below(16) {
            0 => tokio::time::sleep(Duration::from_millis(random.below(4))).await,
            1 => tokio::task::yield_now().await,
            _ => {}
        }
    }
    shown
}

/// A thousand readers join at any place, before, in the middle of and after answers, calls and faults, and with any event as
/// their last: each gets every event once, and of each answer a beginning that is what is stored in the end.
async fn readers_join_anywhere(site: Site) {
    const SESSIONS: u64 = 20;
    const READERS: usize = 50;
    let site = site.unsynced();
    let storage = site.open().await;
    let (mut parts, mut begun) = (0, 0);
    for seed in 0..SESSIONS {
        let mut random = Random(seed);
        let scripts: Vec<_> = (0..3).map(|name| script(&mut random, name)).collect();
        let model = ScriptedProvider::new(scripts.into_iter().flatten());
        let nod = tool("nod", "Nods.", |_: Nothing, _| async { Ok::<_, String>("yes") });
        let builder = AgentBuilder::new().with_llm(model).with_tool(nod);
        let agent = builder.with_storage(storage.clone()).build().unwrap();
        let chat = agent.conversation(&format!("session/{seed}")).await.unwrap();
        let (ended, end) = watch::channel(None);
        let mut readers = Vec::new();
        let mut join = async |chance: u64| {
            if readers.len() < READERS && random.below(chance) == 0 {
                let head = chat.refresh().await.unwrap().head;
                let after = match random.below(3) {
                    0 => Seq::ZERO,
                    1 => Seq::new(random.below(head.get() + 1)),
                    _ => head,
                };
                // Another handle of the same stores, as a server has for each request.
                let chat = agent.for_storage(storage.clone()).conversation_by_id(chat.id()).await.unwrap();
                let random = Random(random.below(u64::MAX));
                readers.push(tokio::spawn(reader(chat, after, end.clone(), random)));
            }
        };
        join(1).await;
        for name in 0..3 {
            let mut run = chat.prompt(format!("prompt {name}")).await.unwrap();
            while let Some(update) = run.next().await {
                update.unwrap();
                join(4).await;
            }
        }
        for _ in 0..READERS {
            join(1).await;
        }
        ended.send_replace(Some(chat.refresh().await.unwrap().head));
        let log = log(&chat).await;
        assert_eq!(readers.len(), READERS);
        for reader in readers {
            let shown = timeout(STUCK, reader).await.expect("a reader is stuck").unwrap();
            // Nobody else writes: what came before the answer came before its pieces.
            assert_eq!((shown.open.len(), &shown.withdrawn[..], shown.between), (0, &[][..], 0));
            parts += shown.check(&log);
            begun += shown.replaced.len();
        }
    }
    println!("{begun} parts were seen while they were written, {parts} of them wholly");
    assert!(begun > 500, "few joined in an answer: {begun}");
}

each_store!(readers_join_anywhere and files, flavor = "multi_thread", worker_threads = 2);

/// Model whose next answer a test sends.
#[derive(Debug)]
struct Fed(Mutex<Option<mpsc::UnboundedReceiver<ModelEvent>>>);

impl Fed {
    fn new() -> (mpsc::UnboundedSender<ModelEvent>, Self) {
        let (to, from) = mpsc::unbounded_channel();
        (to, Self(Mutex::new(Some(from))))
    }
}

#[async_trait]
impl LlmProvider for Fed {
    fn name(&self) -> &str {
        "fed"
    }

    fn model(&self) -> &str {
        "fed"
    }

    async fn generate(&self, _: ModelRequest) -> Result<ModelStream> {
        let from = self.0.lock().unwrap().take().expect("it answers once");
        Ok(stream::unfold(from, |mut from| async { from.recv().await.map(|event| (Ok(event), from)) })
            .boxed())
    }
}

/// A thousand readers, one after each piece of an answer whose parts grow in turn: each has what was written until then, and
/// in the end the whole answer, each piece once.
#[tokio::test]
async fn readers_join_after_each_piece() {
    const PARTS: u32 = 5;
    let (model, fed) = Fed::new();
    let storage: Storage = MemoryStore::new().into();
    let agent = agent(&storage, fed);
    let chat = agent.conversation("key").await.unwrap();
    let mut run = chat.prompt("Tell me all.").await.unwrap();
    let head = chat.record().head;
    let (mut random, mut whole, mut readers) = (Random(7), Vec::<String>::new(), Vec::new());
    let kind = |index: u32| [PartKind::Text, PartKind::Reasoning, PartKind::Refusal][index as usize % 3];
    for n in 0..1000 {
        let index = random.below(u64::from(PARTS)) as u32;
        let index = index.min(whole.len() as u32);
        if index as usize == whole.len() {
            model.send(ModelEvent::part_started(index, kind(index))).unwrap();
            whole.push(String::new());
        }
        let text = format!("{n} ");
        whole[index as usize].push_str(&text);
        model.send(ModelEvent::delta(index, text.clone())).unwrap();
        loop {
            match run.next().await.unwrap().unwrap() {
                Update::Text(piece) | Update::Thinking(piece) if piece == text => break,
                Update::Ended(report) => panic!("{report:?}"),
                _ => {}
            }
        }
        let mut items = chat.live(head);
        let mut shown = Shown::after(head);
        shown.until(&mut items, |shown| shown.open.values().eq(&whole)).await;
        assert_eq!(shown.items, whole.len(), "what was written comes as one item for each part");
        readers.push((items, shown));
        // Some readers read at once, the others later.
        let at = random.below(readers.len() as u64) as usize;
        let (items, shown) = &mut readers[at];
        shown.until(items, |shown| shown.open.values().eq(&whole)).await;
    }
    for (items, shown) in &mut readers {
        shown.until(items, |shown| shown.open.values().eq(&whole)).await;
    }
    for (index, text) in (0..).zip(&whole) {
        let part = match kind(index) {
            PartKind::Text => ModelPart::text(text),
            PartKind::Reasoning => ModelPart::reasoning(text),
            _ => ModelPart::part(Part::refusal(text)),
        };
        model.send(ModelEvent::part_done(index, part)).unwrap();
    }
    model.send(ModelEvent::done(StopReason::EndTurn, Usage::default())).unwrap();
    run.finish().await.unwrap();
    let (head, log) = (chat.refresh().await.unwrap().head, log(&chat).await);
    for (items, shown) in &mut readers {
        shown.until(items, |shown| shown.seen == head).await;
        assert_eq!(shown.check(&log), whole.len());
    }
}

/// A reader that reads nothing holds nothing up, and gets the whole answer in few pieces when it reads again.
#[tokio::test]
async fn slow_readers_get_long_pieces() {
    const PIECES: usize = 20_000;
    let gate = Gate::new();
    let text = |n: usize| format!("{n} — 한글. ");
    let turn = (0..PIECES).fold(Turn::new().text("so "), |turn, n| turn.text(text(n))).gate(&gate);
    let storage: Storage = MemoryStore::new().into();
    let agent = agent(&storage, ScriptedProvider::new([turn]));
    let chat = agent.conversation("key").await.unwrap();
    let mut run = chat.prompt("Tell me all.").await.unwrap();
    let head = chat.record().head;
    until_text(&mut run).await;
    let (mut slow, mut shown) = (chat.live(head), Shown::after(head));
    shown.until(&mut slow, |shown| !shown.open.is_empty()).await;
    let whole = (0..PIECES).fold("so ".to_owned(), |whole, n| whole + &text(n));
    let mut streamed = "so ".len();
    while streamed < whole.len() {
        streamed += until_text(&mut run).await.len();
    }
    let before = shown.items;
    shown.until(&mut slow, |shown| shown.open.values().eq([&whole])).await;
    let pieces = shown.items - before;
    assert!(pieces <= whole.len() / PIECE_MAX_BYTES + 2, "{pieces} pieces for {} bytes", whole.len());
    gate.open();
    run.finish().await.unwrap();
    let head = chat.refresh().await.unwrap().head;
    shown.until(&mut slow, |shown| shown.seen == head).await;
    assert_eq!(shown.check(&log(&chat).await), 1);
}

/// Begins an answer with reasoning and a text, of which the readers have all when this returns.
async fn begun(chat: &Conversation) -> (Run, Items, Shown) {
    let mut run = chat.prompt("Go.").await.unwrap();
    let head = chat.refresh().await.unwrap().head;
    let (mut items, mut shown) = (chat.live(head), Shown::after(head));
    shown.until(&mut items, |shown| shown.open.values().eq(["I think.", "I say."])).await;
    until_text(&mut run).await;
    (run, items, shown)
}

fn thought_and_text() -> Turn {
    Turn::new().event(ModelEvent::thinking("I think.")).text("I say.")
}

fn texts(events: &[Event]) -> Vec<String> {
    let messages = events.iter().filter(|event| event.kind == EventType::AGENT_MESSAGE);
    messages.filter_map(|event| event.text().map(Into::into)).collect()
}

/// A cancelled answer and one that fails in the middle are stored as far as they came: their events replace the pieces.
async fn cut_answers_are_replaced(site: Site) {
    let storage = site.open().await;
    let gate = Gate::new();
    let fault = ProviderFault::new(FaultKind::Overloaded, "too many users").with_retry_after(Duration::ZERO);
    let turns = [thought_and_text().gate(&Gate::new()), thought_and_text().gate(&gate).cut(fault)];
    let agent = agent(&storage, ScriptedProvider::new(turns));
    let chat = agent.open(&device("laptop")).await.unwrap();
    for is_cancelled in [true, false] {
        let (run, mut items, mut shown) = begun(&chat).await;
        if is_cancelled {
            run.cancel();
        } else {
            gate.open();
        }
        drop(run);
        shown.until(&mut items, |shown| shown.open.is_empty()).await;
        assert_eq!((&shown.withdrawn[..], shown.replaced.len()), (&[][..], 2), "{}", site.name);
        let idle = |shown: &Shown| shown.events.iter().any(|event| event.transition().unwrap().is_some());
        shown.until(&mut items, idle).await;
        assert_eq!(texts(&shown.events), ["I say."], "{}", site.name);
    }
}

each_store!(cut_answers_are_replaced and files);

/// A run that lost its lease stores nothing more: its pieces are withdrawn, and those of the run that took over come.
#[tokio::test]
async fn pieces_of_a_fenced_run_are_withdrawn() {
    let storage: Storage = MemoryStore::new().into();
    let turns = [thought_and_text().gate(&Gate::new()), Turn::new().text("Again.").gate(&Gate::new())];
    let agent = agent(&storage, ScriptedProvider::new(turns));
    let chat = agent.open(&device("laptop")).await.unwrap();
    let (first, mut items, mut shown) = begun(&chat).await;
    let commit = shown.open.keys().next().unwrap().0;
    let now = chat.refresh().await.unwrap();
    let lost = Commit::seal(agent.effects(), chat.id(), now.head);
    storage.sessions.commit_with_retry(lost.with_trigger(Trigger::LeaseExpired(now.epoch))).await.unwrap();
    let _second = chat.run_pending().await.unwrap().unwrap();
    shown.until(&mut items, |shown| shown.open.values().eq(["Again."])).await;
    assert_eq!((&shown.withdrawn[..], shown.replaced.len()), (&[commit][..], 0));
    assert!(first.finish().await.is_err());
    // A reader that comes later, and reads all from the start, follows the later run only.
    let (mut items, mut shown) = (chat.live(Seq::ZERO), Shown::default());
    shown.until(&mut items, |shown| shown.open.values().eq(["Again."])).await;
    assert_eq!(shown.withdrawn, []);
}

/// If a store refuses an answer and the run goes on, its pieces are withdrawn with the next answer; the events come when
/// they are stored.
#[tokio::test]
async fn pieces_that_are_not_stored_are_withdrawn() {
    let faulty = Faulty::new(MemoryStore::new().into());
    let (first, second) = (Gate::new(), Gate::new());
    let nod = tool("nod", "Nods.", |_: Nothing, _| async { Ok::<_, String>("yes") });
    let call = thought_and_text().gate(&first).call("c", "nod", json("{}"));
    let turns = [call, Turn::new().text("Again.").gate(&second)];
    let config = Config::new().with_on_store_error(OnStoreError::Continue);
    let builder =
        AgentBuilder::new().with_llm(ScriptedProvider::new(turns)).with_tool(nod).with_config(config);
    let agent = builder.with_storage(faulty.storage()).build().unwrap();
    let chat = agent.open(&device("laptop")).await.unwrap();
    let (run, mut items, mut shown) = begun(&chat).await;
    let commit = shown.open.keys().next().unwrap().0;
    // The answer, and before the result of its call again.
    faulty.fail_commits(2);
    first.open();
    shown.until(&mut items, |shown| shown.open.values().eq(["Again."])).await;
    assert_eq!(shown.withdrawn, [commit]);
    shown.over.clear();
    second.open();
    assert!(run.finish().await.unwrap().stored);
    let head = chat.refresh().await.unwrap().head;
    shown.until(&mut items, |shown| shown.seen == head).await;
    assert_eq!(texts(&shown.events), ["I say.", "Again."]);
}

/// If the end of a run cannot be stored, its pieces are withdrawn with it.
#[tokio::test]
async fn pieces_of_a_run_that_broke_are_withdrawn() {
    let faulty = Faulty::new(MemoryStore::new().into());
    let gate = Gate::new();
    let agent = agent(&faulty.storage(), ScriptedProvider::new([thought_and_text().gate(&gate)]));
    let chat = agent.open(&device("laptop")).await.unwrap();
    let (run, mut items, mut shown) = begun(&chat).await;
    let commit = shown.open.keys().next().unwrap().0;
    faulty.fail_commits(100);
    gate.open();
    shown.until(&mut items, |shown| shown.open.is_empty()).await;
    assert!(run.finish().await.is_err());
    assert_eq!((&shown.withdrawn[..], shown.events.len()), (&[commit][..], 0));
}

/// A run is found also if its first event can be read before its process knows that it has begun.
#[tokio::test(start_paused = true)]
async fn readers_wait_for_a_run_that_begins() {
    let faulty = Faulty::new(MemoryStore::new().into());
    let agent = agent(&faulty.storage(), ScriptedProvider::new([thought_and_text().gate(&Gate::new())]));
    let chat = agent.open(&device("laptop")).await.unwrap();
    let head = chat.record().head;
    let (mut items, mut shown) = (chat.live(head), Shown::after(head));
    faulty.lose_answers(1);
    let read = shown.until(&mut items, |shown| shown.open.values().eq(["I think.", "I say."]));
    let (run, ()) = tokio::join!(chat.prompt("Go."), read);
    drop(run.unwrap());
}

/// An answer that is stored comes as its events only, also while the run does not know yet that it is stored.
#[tokio::test(start_paused = true)]
async fn no_piece_follows_its_event() {
    for is_last in [false, true] {
        let faulty = Faulty::new(MemoryStore::new().into());
        let gate = Gate::new();
        let nod = tool("nod", "Nods.", |_: Nothing, _| async { Ok::<_, String>("yes") });
        let turn = thought_and_text().gate(&gate);
        let turn = if is_last { turn } else { turn.call("c", "nod", json("{}")) };
        let model = ScriptedProvider::new([turn, Turn::new().text("Done.")]);
        let builder = AgentBuilder::new().with_llm(model).with_tool(nod).with_storage(faulty.storage());
        let agent = builder.build().unwrap();
        let chat = agent.open(&device("laptop")).await.unwrap();
        let (run, mut items, mut shown) = begun(&chat).await;
        let before = shown.seen;
        // The first reply is lost, and the run sends the commit again after a pause.
        faulty.lose_answers(1);
        gate.open();
        shown.until(&mut items, |shown| shown.seen > before).await;
        let head = chat.refresh().await.unwrap().head;
        shown.until(&mut items, |shown| shown.seen == head).await;
        // One reader has all events, others have fewer: none gets a piece.
        for after in [head, before, Seq::ZERO] {
            let (mut items, mut late) = (chat.live(after), Shown::after(after));
            late.until(&mut items, |late| late.seen == head).await;
            let more = timeout(Duration::from_millis(1), items.try_next()).await;
            assert!(more.is_err() && late.replaced.is_empty() && late.open.is_empty(), "{more:?}");
        }
        assert_eq!(chat.refresh().await.unwrap().head, head, "the run does not know it");
        let text = if is_last { "I say." } else { "Done." };
        assert_eq!(run.finish().await.unwrap().text, text);
    }
}

/// Pieces belong to the session of the run: forks share its history, and other tenants the id of its session. A reader in
/// another process gets the events.
#[tokio::test]
async fn pieces_stay_in_their_session() {
    let store = MemoryStore::new();
    let tenant = |name: &str| store.tenant(&name.parse::<TenantId>().unwrap());
    let gate = Gate::new();
    let model = || ScriptedProvider::new([thought_and_text().gate(&gate)]);
    let ours = agent(&tenant("a"), model());
    let chat = ours.conversation("key").await.unwrap();
    let theirs = ours.for_storage(tenant("b")).conversation("key").await.unwrap();
    assert_eq!(chat.id(), theirs.id());
    let (run, ..) = begun(&chat).await;
    let fork = chat.fork(Fork::new()).await.unwrap();
    let elsewhere = agent(&tenant("a"), model()).conversation_by_id(chat.id()).await.unwrap();
    let others = [theirs, fork, elsewhere];
    let mut readers: Vec<_> = others.iter().map(|chat| (chat.live(Seq::ZERO), Shown::default())).collect();
    for (chat, (items, shown)) in others.iter().zip(&mut readers) {
        let head = chat.refresh().await.unwrap().head;
        shown.until(items, |shown| shown.seen == head).await;
        let more = timeout(Duration::from_millis(20), items.try_next()).await;
        assert!(more.is_err() && shown.open.is_empty(), "{more:?}");
    }
    gate.open();
    run.finish().await.unwrap();
    let head = chat.refresh().await.unwrap().head;
    let (items, shown) = &mut readers[2];
    shown.until(items, |shown| shown.seen == head).await;
    assert_eq!((texts(&shown.events), shown.items as u64), (vec!["I say.".to_owned()], head.get()));
}

/// A shutdown ends the streams after the last events; a deletion of the session replaces or withdraws what is open.
#[tokio::test]
async fn streams_end_with_the_runtime_and_survive_a_deletion() {
    let storage: Storage = MemoryStore::new().into();
    let turns = [thought_and_text().gate(&Gate::new()), thought_and_text().gate(&Gate::new())];
    let agent = agent(&storage, ScriptedProvider::new(turns));
    let deleted = agent.open(&device("laptop")).await.unwrap();
    let (run, mut items, mut shown) = begun(&deleted).await;
    deleted.delete().await.unwrap();
    let _ended = timeout(STUCK, run.finish()).await.unwrap();
    let head = deleted.refresh().await.unwrap().head;
    shown.until(&mut items, |shown| shown.seen == head && shown.open.is_empty()).await;

    let chat = agent.conversation("key").await.unwrap();
    let (run, mut others, mut other) = begun(&chat).await;
    drop(run);
    agent.shutdown(Duration::ZERO).await.unwrap();
    while let Some(live) = timeout(STUCK, others.try_next()).await.unwrap().unwrap() {
        other.take(live);
    }
    assert_eq!(texts(&other.events), ["I say."]);
    assert!(timeout(STUCK, items.try_next()).await.unwrap().unwrap().is_none());
}

/// The values of secrets are in no piece, also if the model writes them in several.
#[tokio::test]
async fn values_of_secrets_are_in_no_piece() {
    let (name, value): (SecretName, _) = ("github".parse().unwrap(), "ghp_0123456789");
    let secrets = Secrets::new(BTreeMap::from([(name.clone(), Secret::new(value).unwrap())]));
    secrets.reveal(WorkspaceId::DEFAULT, &name).await.unwrap();
    let gate = Gate::new();
    let turn = Turn::new().text("It is ghp_01").text("23456789, I think").text(".").gate(&gate);
    let storage: Storage = MemoryStore::new().into();
    let agent = agent(&storage, ScriptedProvider::new([turn])).with_secrets(secrets);
    let chat = agent.open(&device("laptop")).await.unwrap();
    let run = chat.prompt("Go.").await.unwrap();
    let head = chat.record().head;
    let (mut items, mut shown) = (chat.live(head), Shown::after(head));
    let is_said = |shown: &Shown| shown.open.values().any(|text| text.contains("(secret github), I"));
    shown.until(&mut items, is_said).await;
    gate.open();
    run.finish().await.unwrap();
    let head = chat.refresh().await.unwrap().head;
    shown.until(&mut items, |shown| shown.seen == head).await;
    shown.check(&log(&chat).await);
    assert!(shown.replaced.iter().all(|(_, text)| !text.contains("ghp")), "{:?}", shown.replaced);
}
