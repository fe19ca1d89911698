//! The suite in another process: the test program starts itself again, with an order in the environment.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Expect};
use agent_core::event::NewEvent;
use agent_core::model::Workspace;
use agent_core::session::NewSession;
use agent_core::{DeviceId, Seq, SessionId, SessionStoreExt, Storage, TenantId, WorkspaceId};

use crate::factory::{AnyFactory, AnySite};
use crate::failure::{Checked, Failure};

/// The variable that holds the order.
const ORDER: &str = "AGENT_STORAGE_CONFORMANCE_ORDER";

/// How often a process tries to open a store that another has just closed, and how long it waits between.
const OPENINGS: usize = 100;
const MOMENT: Duration = Duration::from_millis(50);

/// More than a process does before it is killed.
const ENDLESS: usize = 100_000;

/// What another process is to do.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// Append so many messages to a session, one a commit; say the number of each once it is acknowledged.
    Append(SessionId, String, u64),
    /// Bind a device to a workspace unless it is bound; say what is bound then.
    Contact(DeviceId, WorkspaceId),
    /// Create sessions in a workspace, each with three messages, until killed; say the id of each.
    CreateSessions(WorkspaceId),
    /// Create workspaces of this name, each with a configuration, until killed; say the id of each once it has both.
    CreateWorkspaces(String),
    /// Bind devices `<name> 0`, `<name> 1` and so on to a workspace, until killed; say each.
    BindDevices(String, WorkspaceId),
}

/// The configuration of each workspace that another process makes.
pub(crate) const CONFIG: &str = "made = \"by another process\"\n";

impl Order {
    fn to_text(&self, address: &str) -> String {
        match self {
            Self::Append(session, name, count) => format!("append\n{session}\n{name}\n{count}\n{address}"),
            Self::Contact(device, workspace) => format!("contact\n{device}\n{workspace}\n\n{address}"),
            Self::CreateSessions(workspace) => format!("sessions\n{workspace}\n\n\n{address}"),
            Self::CreateWorkspaces(name) => format!("workspaces\n{name}\n\n\n{address}"),
            Self::BindDevices(name, workspace) => format!("bindings\n{name}\n{workspace}\n\n{address}"),
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
            _ => return Err(bad()),
        };
        Ok((order, address.to_owned()))
    }
}

/// Does what an order in the environment says, where there is one.
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
                let said = vec![NewEvent::user_message(format!("{name} {n}"))];
                seen = storage.sessions.append(&effects, id, seen, said).await?.last;
                answer(seen)?;
            }
        }
        Order::Contact(device, workspace) => {
            answer(storage.bindings.bind(&device, workspace, Expect::Absent).await?)?;
        }
        Order::CreateSessions(workspace) => {
            for _ in 0..ENDLESS {
                let new = NewSession::new(effects.new_session_id(), workspace);
                let messages = (0..3).map(|n| NewEvent::user_message(format!("message {n}")));
                let done = storage.sessions.commit(Commit::create(&effects, new).events(messages)).await?;
                answer(done.session.id)?;
            }
        }
        Order::CreateWorkspaces(name) => {
            for _ in 0..ENDLESS {
                let (id, main) = (effects.new_workspace_id(), effects.new_session_id());
                let new = Workspace::new(id, &*name, main, effects.now());
                storage.workspaces.put(new, Expect::Absent).await?;
                storage.workspaces.save_config(id, Some(CONFIG.to_owned()), Expect::Absent).await?;
                answer(id)?;
            }
        }
        Order::BindDevices(name, workspace) => {
            for n in 0..ENDLESS {
                let device: DeviceId = format!("{name} {n}").parse()?;
                storage.bindings.bind(&device, workspace, Expect::Absent).await?;
                answer(device)?;
            }
        }
    }
    Ok(())
}

/// One line for the process that gave the order, on its way before anything else happens.
fn answer(what: impl std::fmt::Display) -> Checked {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{what}")
        .and_then(|()| out.flush())
        .map_err(|error| Failure::new("an answer to another process", "success", error))
}

/// Another process at work. It is killed, at the latest, when this is dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Worker {
    /// Starts this program again, to do as ordered with the store at `address`.
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

    /// Its next answer; `None` where it has ended.
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

    /// Its next answer, as a sequence number.
    pub(crate) fn next_seq(&mut self) -> Checked<Option<Seq>> {
        self.next()?.as_deref().map(seq).transpose()
    }

    /// Waits for so many answers and `delay` more, ends it in the middle of whatever it does (`kill -9` where there is
    /// such a thing), and returns all that it answered.
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

/// An answer that is a sequence number.
pub(crate) fn seq(answer: &str) -> Checked<Seq> {
    answer.parse().map(Seq::new).map_err(|_| Failure::new("another process", "a number", answer))
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
