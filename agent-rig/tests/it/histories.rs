//! Random histories over four APIs, on servers that sign, check and refuse as the providers do. Prompts end, are
//! cancelled, fail, and lose their process in the middle of a stream or of a tool; sessions are forked, edited, rewound, retried, compacted and
//! cleared, and change their system prompt and model at every point; servers refuse a picture, a long history, or
//! everything for a while. Nothing else is refused, nothing is refused in the end, and no reasoning is lost unless
//! something before it changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Trigger};
use agent_core::event::{Media, Message, Part};
use agent_core::session::Fork;
use agent_core::{MemoryStore, Seq, SessionId, SessionStoreExt, Storage, Timestamp};
use agent_rig::RigProvider;
use agent_rig::rig_core::providers::openai::wire::OPENAI;
use agent_runtime::schemars::JsonSchema;
use agent_runtime::{
    AgentBuilder, AgentRuntime, Config, Conversation, RunError, RunReport, ToolContext, tool,
};
use model_servers::{Answer, Item, Provider, Refusal, Request, Rule, Server, Wire};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::logs::{self, SECRETS};
use crate::server::{DEADLINE, soon};
use crate::{anthropic, chat, gemini, responses};

/// Histories that are tried, unless `AGENT_HISTORIES` says another number.
const HISTORIES: u64 = 200;

/// Points of a history.
const STEPS: u64 = 12;

/// What a server has seen and given.
#[derive(Debug, Default)]
struct Seen {
    /// Signatures in the first request of the present run, and in the last request.
    first: Option<BTreeSet<String>>,
    last: BTreeSet<String>,
    /// Signatures in the last answer that was given whole.
    made: BTreeSet<String>,
    stale: Vec<String>,
    requests: usize,
    given_back: usize,
    /// How the next answer ends too early.
    end: Option<End>,
    /// Whether everything is refused.
    is_down: bool,
    /// Whether the next history is too long, and how long it may be.
    is_full: bool,
    most: Option<usize>,
    /// Number of requests that were refused: pictures, long histories, everything.
    refused: [usize; 3],
}

/// Bytes of a picture that looks like one and that no server takes, and their base64.
const BROKEN: (&[u8], &str) = (b"\x89PNG\r\ncut", "iVBORw0KY3V0");

impl Seen {
    /// Returns what is wrong with a request, besides the rules of the provider.
    fn refusal(&mut self, request: &Request) -> Option<&'static str> {
        let body = request.body();
        let messages =
            ["messages", "input", "contents"].map(|name| body[name].as_array().map_or(0, Vec::len));
        let (body, is_short) = (body.to_string(), messages.iter().sum::<usize>() < 5);
        if self.is_down {
            self.refused[2] += 1;
            return Some("This server takes nothing today.");
        }
        if self.is_full && !is_short && self.most.is_none_or(|most| body.len() > most) {
            self.most.get_or_insert(body.len() * 3 / 4);
            self.refused[1] += 1;
            return Some("prompt is too long");
        }
        if body.contains(BROKEN.1) {
            self.refused[0] += 1;
            return Some("Could not process image");
        }
        (self.is_full, self.most) = (false, None);
        None
    }
}

/// Arguments of the calls.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "agent_runtime::schemars")]
#[allow(dead_code, reason = "a tool reads them from JSON")]
struct Look {
    z: u32,
    a: Value,
    m: Value,
}

/// How an answer ends too early.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The connection breaks.
    Breaks,
    /// Nothing comes any more.
    Hangs,
}

fn pick(effects: &Effects, of: u64) -> u64 {
    effects.random_u64() % of
}

/// Items of a random answer.
fn items(effects: &Effects) -> Vec<Item> {
    let mut items = Vec::new();
    for n in 0..=pick(effects, 3) {
        items.push(match pick(effects, 4) {
            0 => Item::Reasoning(format!("Thought {n}, PAYLOAD. 한🙂")),
            1 => Item::Redacted,
            _ => Item::Text(format!("Text {n}, PAYLOAD. \u{2028}é")),
        });
    }
    if pick(effects, 2) == 0 {
        for n in 0..=pick(effects, 2) {
            let arguments = json!({"z": n, "a": [1.5, "PAYLOAD é"], "m": {"y": null, "b": true}});
            items.push(match pick(effects, 12) {
                0 => Item::Call { name: "functions.look".to_owned(), arguments },
                1 => Item::Call { name: "look".to_owned(), arguments: r#"{"z":1,"a":"PAYLOAD"#.into() },
                _ => Item::Call { name: "look".to_owned(), arguments },
            });
        }
    } else {
        items.push(Item::Text("Done.".to_owned()));
    }
    items
}

/// Whether a model may say it: a call has a name that was offered to it, and arguments.
fn is_usual(item: &Item) -> bool {
    !matches!(item, Item::Call { name, arguments } if name != "look" || !arguments.is_object())
}

/// Signatures in an answer, as it is streamed.
fn signatures(answer: &Answer) -> BTreeSet<String> {
    let is_signature = |text: &&str| text.starts_with("EpEA") && text.len() == 60;
    answer.body().split('"').filter(is_signature).map(str::to_owned).collect()
}

struct Life {
    seed: u64,
    effects: Effects,
    storage: Storage,
    servers: BTreeMap<Wire, (Server, Arc<Mutex<Seen>>)>,
    /// Signatures that each server must find in its next request.
    kept: BTreeMap<Wire, BTreeSet<String>>,
    system: &'static str,
    /// True if tools do not answer.
    stalls: Arc<AtomicBool>,
    session: Option<SessionId>,
    /// Heads after answers that came whole, and the signatures that each server must find in the next request from there.
    points: Vec<(Seq, BTreeMap<Wire, BTreeSet<String>>)>,
    /// What happened, for a failure.
    story: Vec<String>,
}

impl Life {
    async fn new(seed: u64) -> Self {
        let effects = Effects::seeded(seed, Timestamp::UNIX_EPOCH);
        let mut servers = BTreeMap::new();
        for wire in Wire::ALL {
            let seen = Arc::new(Mutex::new(Seen::default()));
            let (serving, chance) = (seen.clone(), effects.clone());
            let server = Server::checking(Provider::new(wire), move |provider, request, checked| {
                let mut seen = serving.lock().unwrap();
                let current: BTreeSet<_> = checked.current.iter().cloned().collect();
                seen.first.get_or_insert_with(|| current.clone());
                seen.requests += 1;
                seen.given_back += current.len();
                seen.last = current;
                seen.stale.extend(checked.stale.clone());
                seen.made.clear();
                if let Some(message) = seen.refusal(request) {
                    let rule = Rule::Shape;
                    let refusal = Refusal { rule, status: 400, message: message.to_owned() };
                    return refusal.answer(provider.wire());
                }
                let items = items(&chance);
                let answer = provider.answer(request, &items);
                let bytes = usize::try_from(pick(&chance, answer.body().len() as u64)).unwrap();
                match seen.end.take() {
                    None => {
                        // What is not as it should be goes back in another form, and nothing beside it as it came.
                        if items.iter().all(is_usual) {
                            seen.made = signatures(&answer);
                        }
                        answer
                    }
                    Some(End::Breaks) => answer.cut(bytes),
                    Some(End::Hangs) => answer.cut(bytes).hanging(),
                }
            })
            .await;
            servers.insert(wire, (server, seen));
        }
        let storage = MemoryStore::new().into();
        let stalls = Arc::default();
        Self {
            seed,
            effects,
            storage,
            servers,
            kept: BTreeMap::new(),
            system: "Be brief.",
            stalls,
            session: None,
            points: Vec::new(),
            story: Vec::new(),
        }
    }

    fn pick(&self, of: u64) -> u64 {
        pick(&self.effects, of)
    }

    fn model(&self, wire: Wire) -> RigProvider {
        let server = &self.servers[&wire].0;
        match wire {
            Wire::Anthropic => anthropic::model(server, "claude-opus-5-5"),
            Wire::Responses => responses::model(server),
            Wire::Gemini => gemini::model(server, "gemini-3-pro-preview"),
            Wire::Chat => chat::model(server, &OPENAI, "gpt-4o"),
        }
    }

    /// A new process.
    fn agent(&self, wire: Wire) -> AgentRuntime {
        let config = Config::new()
            .with_system_prompt(self.system)
            .with_store_thinking(true)
            .with_max_tokens(1024)
            .with_resume_on_prompt(true)
            .with_model_retries(0);
        let stalls = self.stalls.clone();
        let inspect = tool("look", "A tool.", move |_: Look, _: ToolContext| {
            let stalls = stalls.clone();
            async move {
                if stalls.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                Ok::<_, String>("done PAYLOAD")
            }
        });
        let builder = AgentBuilder::new().with_llm(self.model(wire)).with_storage(self.storage.clone());
        builder.with_config(config).with_tool(inspect).build().unwrap()
    }

    async fn conversation(&mut self, agent: &AgentRuntime) -> Conversation {
        match self.session {
            Some(id) => agent.conversation_by_id(id).await.unwrap(),
            None => {
                let chat = agent.conversation("test").await.unwrap();
                self.session = Some(chat.id());
                chat
            }
        }
    }

    fn input(&self) -> Message {
        let picture = Part::Image(Media::inline("image/png", *b"\x89PNG"));
        match self.pick(7) {
            // Without a text, and with an empty one.
            6 => Message::of_parts([picture]),
            5 => Message::of_parts([Part::text(" "), picture, Part::text("")]),
            0 => Message::new("Look:").with_part(picture),
            2 => Message::new("Look:").with_part(Part::Image(Media::inline("image/png", BROKEN.0))),
            _ => Message::new(format!("Question {}, PAYLOAD", self.pick(1000))),
        }
    }

    fn seen(&self, wire: Wire) -> std::sync::MutexGuard<'_, Seen> {
        self.servers[&wire].1.lock().unwrap()
    }

    /// Checks what a run has sent: nothing was refused, and no reasoning is lost.
    fn check(&self, wire: Wire) {
        let server = &self.servers[&wire].0;
        let report = || {
            let repeated = std::env::var_os("AGENT_HISTORY").map(|_| server.requests());
            format!("seed {}: {:?} {repeated:#?}", self.seed, self.story)
        };
        assert_eq!(server.refusals(), [], "{}", report());
        let seen = self.seen(wire);
        assert_eq!(seen.stale, [""; 0], "{}", report());
        if let (Some(first), Some(kept)) = (&seen.first, self.kept.get(&wire)) {
            let lost: Vec<_> = kept.difference(first).collect();
            assert!(lost.is_empty(), "{wire:?} did not get back {lost:?}, {}", report());
        }
    }

    /// A prompt whose answer comes, to the end.
    async fn whole(&mut self, wire: Wire) {
        let agent = self.agent(wire);
        let chat = self.conversation(&agent).await;
        self.seen(wire).first = None;
        let run = soon(chat.prompt(self.input())).await.unwrap();
        let ended = soon(run.finish()).await;
        assert!(ended.is_ok(), "seed {}: {ended:?}, {:?}", self.seed, self.story);
        self.check(wire);
        let kept = {
            let seen = self.seen(wire);
            seen.last.union(&seen.made).cloned().collect()
        };
        self.kept.insert(wire, kept);
        self.points.push((chat.refresh().await.unwrap().head, self.kept.clone()));
    }

    /// Forgets what must be given back: something before it changed.
    fn forget(&mut self) {
        self.kept.clear();
        self.points.clear();
    }

    /// A branch takes the place of the session, from an earlier point.
    async fn branch(&mut self, wire: Wire) {
        let agent = self.agent(wire);
        let chat = self.conversation(&agent).await;
        let now = chat.refresh().await.unwrap();
        if now.last_input <= now.visible_from {
            return;
        }
        let what = self.pick(4);
        self.story.push(["rewind", "undo", "retry", "edit"][usize::try_from(what).unwrap()].to_owned());
        let point = self.pick(self.points.len().max(1) as u64);
        let point = self.points.get(usize::try_from(point).unwrap()).cloned();
        self.seen(wire).first = None;
        let branch = match (what, point) {
            (0, Some((head, kept))) => {
                self.points.retain(|(other, _)| *other <= head);
                self.kept = kept;
                Ok(soon(chat.rewind(head)).await.unwrap())
            }
            (0 | 1, _) => {
                self.back_before(now.last_input);
                Ok(soon(chat.undo()).await.unwrap())
            }
            (2, _) => {
                self.back_before(now.last_input);
                Err(soon(chat.retry()).await)
            }
            _ => {
                self.back_before(now.last_input);
                Err(soon(chat.edit(now.last_input, self.input())).await)
            }
        };
        match branch {
            Ok(branch) => self.session = Some(branch.id()),
            Err(Ok(begun)) => {
                self.session = Some(begun.conversation.id());
                Self::ended(&soon(begun.run.finish()).await);
                self.check(wire);
                // What has come now may be given back, or not.
                self.points.clear();
            }
            Err(Err(error)) => panic!("seed {}: {error}, {:?}", self.seed, self.story),
        }
    }

    /// What must be given back is that of the last answer before a message.
    fn back_before(&mut self, message: Seq) {
        self.points.retain(|(head, _)| *head < message);
        self.kept = self.points.last().map(|(_, kept)| kept.clone()).unwrap_or_default();
    }

    /// A prompt to a server that refuses everything, and then nothing.
    async fn refused(&mut self, wire: Wire) {
        let agent = self.agent(wire);
        let chat = self.conversation(&agent).await;
        let before = chat.refresh().await.unwrap().summary;
        self.seen(wire).first = None;
        self.seen(wire).is_down = true;
        let run = soon(chat.prompt(self.input())).await.unwrap();
        let ended = soon(run.finish()).await;
        assert!(ended.is_err(), "seed {}: {ended:?}", self.seed);
        Self::ended(&ended);
        assert_eq!(chat.refresh().await.unwrap().summary, before, "seed {}: it is for nothing", self.seed);
        self.seen(wire).is_down = false;
        self.healed(wire);
    }

    /// A prompt to a server that takes less than before.
    async fn too_long(&mut self, wire: Wire) {
        let agent = self.agent(wire);
        let chat = self.conversation(&agent).await;
        self.seen(wire).first = None;
        self.seen(wire).is_full = true;
        let run = soon(chat.prompt(self.input())).await.unwrap();
        // The last exchange alone may be too long.
        Self::ended(&soon(run.finish()).await);
        self.seen(wire).is_full = false;
        self.seen(wire).most = None;
        self.healed(wire);
        self.forget();
    }

    /// A prompt that is cancelled while the answer comes, or the tool runs.
    async fn cancelled(&mut self, wire: Wire) {
        let agent = self.agent(wire);
        let chat = self.conversation(&agent).await;
        self.cut(wire, End::Hangs);
        let before = self.servers[&wire].0.requests().len();
        let run = soon(chat.prompt(self.input())).await.unwrap();
        self.asked(wire, before).await;
        tokio::time::sleep(Duration::from_millis(self.pick(5))).await;
        run.cancel();
        Self::ended(&soon(run.finish()).await);
        self.healed(wire);
    }

    /// A prompt whose connection breaks.
    async fn broken(&mut self, wire: Wire) {
        let agent = self.agent(wire);
        let chat = self.conversation(&agent).await;
        self.seen(wire).first = None;
        self.seen(wire).end = Some(End::Breaks);
        let run = soon(chat.prompt(self.input())).await.unwrap();
        Self::ended(&soon(run.finish()).await);
        self.healed(wire);
    }

    /// What came of a run is no matter here; that it ends is, and that its error holds no payload.
    fn ended(ended: &Result<RunReport, RunError>) {
        let shown = match ended {
            Ok(report) => format!("{:?} {:?}", report.outcome, report.fault()),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!SECRETS.iter().any(|secret| shown.contains(secret)), "{shown}");
    }

    /// A prompt whose process dies while the answer comes, or the tool runs.
    async fn killed(&mut self, wire: Wire) {
        let agent = self.agent(wire);
        let id = self.conversation(&agent).await.id();
        drop(agent);
        let process =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        self.cut(wire, End::Hangs);
        let before = self.servers[&wire].0.requests().len();
        let (agent, input) = (self.agent(wire), self.input());
        let begun = process.spawn(async move {
            let chat = agent.conversation_by_id(id).await.unwrap();
            let run = chat.prompt(input).await.unwrap();
            (chat, run)
        });
        let (chat, run) = soon(begun).await.unwrap();
        self.asked(wire, before).await;
        tokio::time::sleep(Duration::from_millis(self.pick(5))).await;
        process.shutdown_background();
        Self::ended(&soon(run.finish()).await);
        drop(chat);
        // Its lease ends.
        let session = self.storage.sessions.load(id).await.unwrap();
        let ended =
            Commit::seal(&self.effects, id, session.head).with_trigger(Trigger::LeaseExpired(session.epoch));
        let _ = self.storage.sessions.commit_with_retry(ended).await;
        self.healed(wire);
    }

    /// Lets the next answer of a server, or the next tool, not come to its end.
    fn cut(&self, wire: Wire, end: End) {
        self.seen(wire).first = None;
        if self.pick(3) == 0 {
            self.stalls.store(true, Ordering::SeqCst);
        } else {
            self.seen(wire).end = Some(end);
        }
    }

    /// Waits until a server has had another request.
    async fn asked(&self, wire: Wire, before: usize) {
        let asked = async {
            while self.servers[&wire].0.requests().len() == before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(DEADLINE, asked).await.expect("the model is asked");
    }

    fn healed(&self, wire: Wire) {
        self.stalls.store(false, Ordering::SeqCst);
        self.check(wire);
        self.seen(wire).end = None;
    }

    async fn step(&mut self) {
        let wire = Wire::ALL[usize::try_from(self.pick(4)).unwrap()];
        let what = self.pick(22);
        let names = [
            "fork", "compact", "clear", "system", "cancel", "cancel", "break", "kill", "kill", "refuse",
            "long", "branch", "branch", "branch", "branch",
        ];
        let name = usize::try_from(what).ok().and_then(|what| names.get(what)).unwrap_or(&"prompt");
        self.story.push(format!("{name} {wire:?}"));
        match what {
            0 => {
                let agent = self.agent(wire);
                let fork = self.conversation(&agent).await.fork(Fork::new()).await.unwrap();
                self.session = Some(fork.id());
            }
            1 => {
                let agent = self.agent(wire);
                // There may be nothing to compact.
                let _ = self.conversation(&agent).await.compact(None, "They talked.").await;
                self.forget();
            }
            2 if self.pick(3) == 0 => {
                let agent = self.agent(wire);
                self.conversation(&agent).await.clear().await.unwrap();
                self.forget();
            }
            3 => {
                self.system = ["Be brief.", "Be long."][usize::try_from(self.pick(2)).unwrap()];
                self.forget();
            }
            4 | 5 => self.cancelled(wire).await,
            6 => self.broken(wire).await,
            7 | 8 => self.killed(wire).await,
            9 => self.refused(wire).await,
            10 => self.too_long(wire).await,
            11..=14 => self.branch(wire).await,
            _ => self.whole(wire).await,
        }
    }
}

#[test]
fn no_history_is_refused_and_no_reasoning_is_lost() {
    let log = logs::read();
    let histories = std::env::var("AGENT_HISTORIES").map_or(HISTORIES, |text| text.parse().unwrap());
    let only: Option<u64> = std::env::var("AGENT_HISTORY").ok().map(|text| text.parse().unwrap());
    let (mut requests, mut given_back, mut refused) = (BTreeMap::new(), 0, [0; 3]);
    for seed in only.map_or(0..histories, |seed| seed..seed + 1) {
        // Servers end with their runtime; those of all histories would take more files than a process may open.
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let mut life = Life::new(seed).await;
            for _ in 0..STEPS {
                life.step().await;
            }
            // Each model can go on.
            for wire in Wire::ALL {
                life.whole(wire).await;
                let seen = life.seen(wire);
                *requests.entry(wire).or_insert(0) += seen.requests;
                given_back += seen.given_back;
                refused.iter_mut().zip(seen.refused).for_each(|(all, more)| *all += more);
            }
        });
    }
    println!("{requests:?} requests, {given_back} signatures given back, {refused:?} refused");
    println!("proof: {} histories that no model refuses", if only.is_some() { 1 } else { histories });
    let least = if only.is_some() { 0 } else { usize::try_from(histories).unwrap() };
    assert!(
        requests.values().all(|requests| *requests >= 3 * least) && given_back >= 5 * least,
        "{given_back}"
    );
    assert!(only.is_some() || refused.iter().all(|refused| *refused > 0), "{refused:?}");
    log.check();
}
