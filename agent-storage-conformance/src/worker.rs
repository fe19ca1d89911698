//! Worker process of the suite: the test program starts itself again, with an order in the environment.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Precondition};
use agent_core::event::NewEvent;
use agent_core::model::Workspace;
use agent_core::session::NewSession;
use agent_core::store::{BLOB_CHUNK_BYTES, BlobInfo, PutBlob};
use agent_core::{DeviceId, Seq, SessionId, Storage, TenantId, WorkspaceId};

use crate::factory::{AnyFactory, AnySite};
use crate::failure::{Checked, Failure};
use crate::samples::{content, showing};

/// Environment variable with the order.
const ORDER: &str = "AGENT_STORAGE_CONFORMANCE_ORDER";

/// Number of attempts to open a store that another process has just closed; `MOMENT` is the pause between them.
const OPENINGS: usize = 100;
const MOMENT: Duration = Duration::from_millis(50);

/// Number of steps that a process never reaches before it is killed.
const ENDLESS: usize = 100_000;

/// Work of another process.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// Append a number of messages to a session, one per commit; print the sequence number of each once it is
    /// acknowledged.
    Append(SessionId, String, u64),
    /// Bind a device to a workspace unless it is bound; print the workspace that it is bound to then.
    Contact(DeviceId, WorkspaceId),
    /// Create sessions in a workspace, each with three messages, until killed; print the id of each.
    CreateSessions(WorkspaceId),
    /// Create workspaces with this name, each with a configuration, until killed; print the id of each once it has
    /// both.
    CreateWorkspaces(String),
    /// Bind devices `<name> 0`, `<name> 1` and so on to a workspace, until killed; print each.
    BindDevices(String, WorkspaceId),
    /// Put [blobs](numbered_blob) from a number on, each for a session and then named by a commit of it, some also before
    /// the creation of another session, until killed; print each [step](BlobStep) once it is acknowledged.
    PutBlobs(SessionId, WorkspaceId, u64),
}

/// Acknowledged step of [`Order::PutBlobs`], with the number of the blob.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BlobStep {
    Put(u64),
    Named(u64),
    /// Put for a session that does not exist.
    Early(u64, SessionId),
    Created(u64, SessionId),
}

impl BlobStep {
    fn to_text(self) -> String {
        match self {
            Self::Put(n) => format!("put {n}"),
            Self::Named(n) => format!("named {n}"),
            Self::Early(n, id) => format!("early {n} {id}"),
            Self::Created(n, id) => format!("created {n} {id}"),
        }
    }

    pub(crate) fn from_text(text: &str) -> Checked<Self> {
        let bad = || Failure::new("an answer from another process", "a step", text);
        let parts: Vec<_> = text.split(' ').collect();
        let number = |n: &str| n.parse().map_err(|_| bad());
        match parts[..] {
            ["put", n] => Ok(Self::Put(number(n)?)),
            ["named", n] => Ok(Self::Named(number(n)?)),
            ["early", n, id] => Ok(Self::Early(number(n)?, id.parse()?)),
            ["created", n, id] => Ok(Self::Created(number(n)?, id.parse()?)),
            _ => Err(bad()),
        }
    }
}

/// Content of the blob with a number: every eighth one has two chunks.
pub(crate) fn numbered_blob(n: u64) -> Vec<u8> {
    content(n, if n % 8 == 7 { BLOB_CHUNK_BYTES + 1000 } else { 1000 })
}

/// Configuration of each workspace that another process creates.
pub(crate) const CONFIG: &str = "made = \"by another process\"\n";

impl Order {
    fn to_text(&self, address: &str) -> String {
        match self {
            Self::Append(session, name, count) => format!("append\n{session}\n{name}\n{count}\n{address}"),
            Self::Contact(device, workspace) => format!("contact\n{device}\n{workspace}\n\n{address}"),
            Self::CreateSessions(workspace) => format!("sessions\n{workspace}\n\n\n{address}"),
            Self::CreateWorkspaces(name) => format!("workspaces\n{name}\n\n\n{address}"),
            Self::BindDevices(name, workspace) => format!("bindings\n{name}\n{workspace}\n\n{address}"),
            Self::PutBlobs(session, workspace, first) => {
                format!("blobs\n{session}\n{workspace}\n{first}\n{address}")
            }
        }
    }

    fn from_text(text: &str) -> Checked<(Self, String)> {
        let bad = || Failure::new("an order from another process", "one of this version", text);
        let mut parts = text.splitn(5, '\n');
        let mut part = || parts.next().ok_or_else(bad);
        let (verb, first, second, third, address) = (part()?, part()?, part()?, part()?, part()?);
        let order = match verb {
            "append" => Self::Append(first.parse()?, second.to_owned(), third.parse().map_err(|_| bad())?),
            "contact" => Self::Contact(first.parse()?, second.parse()?),
            "sessions" => Self::CreateSessions(first.parse()?),
            "workspaces" => Self::CreateWorkspaces(first.to_owned()),
            "bindings" => Self::BindDevices(first.to_owned(), second.parse()?),
            "blobs" => Self::PutBlobs(first.parse()?, second.parse()?, third.parse().map_err(|_| bad())?),
            _ => return Err(bad()),
        };
        Ok((order, address.to_owned()))
    }
}

/// Executes the order in the environment, if there is one.
pub(crate) fn obey(factory: &Arc<dyn AnyFactory>) -> Option<ExitCode> {
    let order = std::env::var(ORDER).ok()?;
    let factory = factory.clone();
    let result = crate::runtime::on_runtime(Duration::MAX, async move {
        let (order, address) = Order::from_text(&order)?;
        let site = factory.attach(&address).await?;
        let storage = opened(&factory, &site).await?;
        carry_out(&storage, order).await
    });
    match result {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(failure) => {
            let _ = writeln!(std::io::stdout().lock(), "failed: {failure}");
            Some(ExitCode::FAILURE)
        }
    }
}

/// Opens the store. The process that gave the order may take a moment to close it.
async fn opened(factory: &Arc<dyn AnyFactory>, site: &AnySite) -> Checked<Storage> {
    for _ in 0..OPENINGS {
        match factory.open(site, &TenantId::default()).await {
            Err(error) if error.is_retryable() => tokio::time::sleep(MOMENT).await,
            other => return Ok(other?),
        }
    }
    Ok(factory.open(site, &TenantId::default()).await?)
}

async fn carry_out(storage: &Storage, order: Order) -> Checked {
    let effects = Effects::default();
    match order {
        Order::Append(id, name, count) => {
            let mut seen = storage.sessions.load(id).await?.head;
            for n in 0..count {
                let events = vec![NewEvent::user_message(format!("{name} {n}"))];
                seen = storage.sessions.append(id, seen, events).await?.last;
                answer(seen)?;
            }
        }
        Order::Contact(device, workspace) => {
            answer(storage.bindings.bind(&device, workspace, Precondition::MustNotExist).await?)?;
        }
        Order::CreateSessions(workspace) => {
            for _ in 0..ENDLESS {
                let new = NewSession::new(effects.new_session_id(), workspace);
                let messages = (0..3).map(|n| NewEvent::user_message(format!("message {n}")));
                let done =
                    storage.sessions.commit(Commit::create(&effects, new).with_events(messages)).await?;
                answer(done.session.id)?;
            }
        }
        Order::CreateWorkspaces(name) => {
            for _ in 0..ENDLESS {
                let (id, main) = (effects.new_workspace_id(), effects.new_session_id());
                let new = Workspace::new(id, &*name, main, effects.now());
                storage.workspaces.put(new, Precondition::MustNotExist).await?;
                storage
                    .workspaces
                    .save_config(id, Some(CONFIG.to_owned()), Precondition::MustNotExist)
                    .await?;
                answer(id)?;
            }
        }
        Order::BindDevices(name, workspace) => {
            for n in 0..ENDLESS {
                let device: DeviceId = format!("{name} {n}").parse()?;
                storage.bindings.bind(&device, workspace, Precondition::MustNotExist).await?;
                answer(device)?;
            }
        }
        Order::PutBlobs(id, workspace, first) => {
            put_blobs(storage, &effects, (id, workspace), first).await?;
        }
    }
    Ok(())
}

/// Puts blobs with these numbers and events that name them, every third also into a new session of the workspace.
async fn put_blobs(
    storage: &Storage,
    effects: &Effects,
    (id, workspace): (SessionId, WorkspaceId),
    first: u64,
) -> Checked {
    let mut seen = storage.sessions.load(id).await?.head;
    for n in first..first + ENDLESS as u64 {
        let bytes = numbered_blob(n);
        let shown = showing(BlobInfo::of(&bytes));
        storage.sessions.blobs().put(PutBlob::of_bytes(id, bytes.clone())).await?;
        answer(BlobStep::Put(n).to_text())?;
        seen = storage.sessions.append(id, seen, vec![shown.clone()]).await?.last;
        answer(BlobStep::Named(n).to_text())?;
        if n % 3 == 1 {
            let new = NewSession::new(effects.new_session_id(), workspace);
            let id = new.id;
            storage.sessions.blobs().put(PutBlob::of_bytes(id, bytes)).await?;
            answer(BlobStep::Early(n, id).to_text())?;
            storage.sessions.commit(Commit::create(effects, new).with_event(shown)).await?;
            answer(BlobStep::Created(n, id).to_text())?;
        }
    }
    Ok(())
}

/// Prints one line for the process that gave the order, and flushes it before anything else happens.
fn answer(what: impl std::fmt::Display) -> Checked {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{what}")
        .and_then(|()| out.flush())
        .map_err(|error| Failure::new("an answer to another process", "success", error))
}

/// Running worker process. It is killed, at the latest, when this is dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Worker {
    /// Starts this program again, to execute the order on the store at `address`.
    pub(crate) fn start(order: &Order, address: &str) -> Checked<Self> {
        let failed = |error| Failure::new("starting another process", "success", error);
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(program)
            .env(ORDER, order.to_text(address))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let Some(out) = child.stdout.take() else {
            return Err(Failure::new("another process", "its output", "none"));
        };
        Ok(Self { child, lines: BufReader::new(out).lines() })
    }

    /// Returns the next answer; `None` if the process has ended.
    pub(crate) fn next(&mut self) -> Checked<Option<String>> {
        match self.lines.next() {
            None => Ok(None),
            Some(Ok(line)) if line.starts_with("failed: ") => {
                Err(Failure::new("what another process did", "success", line))
            }
            Some(Ok(line)) => Ok(Some(line)),
            Some(Err(error)) => Err(Failure::new("another process", "an answer", error)),
        }
    }

    /// Returns the next answer as a sequence number.
    pub(crate) fn next_seq(&mut self) -> Checked<Option<Seq>> {
        self.next()?.as_deref().map(seq).transpose()
    }

    /// Waits for a number of answers and `delay` more, kills the process in the middle of its work (with `kill -9` if
    /// the system has it), and returns all its answers.
    pub(crate) fn kill_after(mut self, answers: u64, delay: Duration) -> Checked<Vec<String>> {
        let mut answered = Vec::new();
        for _ in 0..answers {
            answered.extend(self.next()?);
        }
        // Right after an answer it would always be at the start of the next write.
        #[allow(clippy::disallowed_methods, reason = "the other process does not share a runtime's time")]
        std::thread::sleep(delay);
        self.child.kill().map_err(|error| Failure::new("killing another process", "success", error))?;
        while let Some(line) = self.next()? {
            answered.push(line);
        }
        Ok(answered)
    }
}

/// Parses an answer that is a sequence number.
pub(crate) fn seq(answer: &str) -> Checked<Seq> {
    answer.parse().map(Seq::new).map_err(|_| Failure::new("another process", "a number", answer))
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
