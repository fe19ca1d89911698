//! One client: its sessions, their turns, and the requests that it makes.

use std::path::Path;
use std::sync::Arc;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::{ConnectionTo, Responder, schema};
use agent_client_protocol::{Agent, Channel, Client, JsonRpcResponse, Result};
use agent_client_protocol::{on_receive_notification, on_receive_request};
use agent_core::model::Patch;
use agent_core::session::{Fork, SessionRecord};
use agent_core::state::SessionState;
use agent_core::store::{Cursor, SessionQuery};
use agent_core::{DeviceId, ErrorKind, SessionId, WorkspaceId};
use agent_runtime::{AgentRuntime, Conversation, MediaKind, NewWorkspace};
use serde_json::json;
use tracing::{debug, warn};

use crate::open::{OpenSessions, Options};
use crate::servers::{ClientServers, GivenServers};
use crate::updates::Updates;
use crate::{fault, meta, turn};

/// Label of a session that keeps the working directory of its last client.
pub const DIRECTORY_LABEL: &str = "acp.cwd";

/// Maximum bytes of a working directory: those of the label that keeps it.
const DIRECTORY_MAX_BYTES: usize = 512;

/// Directory of a session that no client has opened.
const NO_DIRECTORY: &str = "/";

/// Number of sessions on a page of a list.
const PAGE: usize = 50;

/// Connection with one client.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) open: Arc<OpenSessions>,
}

/// Answers a request in a task, so that it does not hold up the messages behind it.
macro_rules! request {
    ($connection:expr, $request:ty, |$this:ident, $client:ident, $asked:ident, $responder:ident| $answer:expr) => {{
        let connection = $connection.clone();
        async move |$asked: $request, $responder: Responder<_>, $client: ConnectionTo<Client>| {
            let $this = connection.clone();
            connection.open.spawn(async move { $answer });
            Ok(())
        }
    }};
    ($connection:expr, $method:ident, $request:ty) => {
        request!($connection, $request, |this, _client, request, responder| {
            respond(responder, this.$method(request).await);
        })
    };
}

impl Connection {
    pub(crate) fn new(options: Options) -> Self {
        Self { open: OpenSessions::new(options) }
    }

    fn agent(&self) -> &AgentRuntime {
        &self.open.options.agent
    }

    fn servers(&self) -> &ClientServers {
        &self.open.options.servers
    }

    /// Serves the messages of a channel until it is closed.
    pub(crate) async fn serve(&self, channel: Channel) -> Result<()> {
        let (initialized, prompted, cancelled) = (self.clone(), self.clone(), self.clone());
        Agent
            .v1()
            .name("agent-acp")
            .on_receive_request(
                async move |request: schema::InitializeRequest, responder, _: ConnectionTo<Client>| {
                    respond(responder, initialized.initialize(&request));
                    Ok(())
                },
                on_receive_request!(),
            )
            .on_receive_request(request!(self, create, schema::NewSessionRequest), on_receive_request!())
            .on_receive_request(request!(self, list, schema::ListSessionsRequest), on_receive_request!())
            .on_receive_request(request!(self, close, schema::CloseSessionRequest), on_receive_request!())
            .on_receive_request(request!(self, delete, schema::DeleteSessionRequest), on_receive_request!())
            .on_receive_request(request!(self, fork, schema::ForkSessionRequest), on_receive_request!())
            .on_receive_request(
                request!(self, schema::LoadSessionRequest, |this, client, request, responder| {
                    let opened = this.load(&client, request).await;
                    this.opened(&client, responder, opened, schema::LoadSessionResponse::new());
                }),
                on_receive_request!(),
            )
            .on_receive_request(
                request!(self, schema::ResumeSessionRequest, |this, client, request, responder| {
                    let opened = this.resume(request).await;
                    this.opened(&client, responder, opened, schema::ResumeSessionResponse::new());
                }),
                on_receive_request!(),
            )
            .on_receive_request(
                async move |request: schema::PromptRequest, responder, client: ConnectionTo<Client>| {
                    prompted.prompt(client, request, responder);
                    Ok(())
                },
                on_receive_request!(),
            )
            .on_receive_notification(
                async move |request: schema::CancelNotification, _: ConnectionTo<Client>| {
                    // A notification has no answer.
                    if let Ok(id) = session_id(&request.session_id) {
                        cancelled.open.cancel(id);
                    }
                    Ok(())
                },
                on_receive_notification!(),
            )
            .connect_to(channel)
            .await
    }

    /// Begins a turn before the next message is read, which may be the cancellation of this turn.
    fn prompt(
        &self,
        client: ConnectionTo<Client>,
        request: schema::PromptRequest,
        responder: Responder<schema::PromptResponse>,
    ) {
        match session_id(&request.session_id).and_then(|id| self.open.begin_turn(id)) {
            Ok(turn) => self.open.spawn(async move {
                respond(responder, turn::prompt(turn, &client, request.prompt).await);
            }),
            Err(error) => respond(responder, Err(error)),
        }
    }

    fn initialize(&self, request: &schema::InitializeRequest) -> Result<schema::InitializeResponse> {
        let client = request.client_capabilities.session.as_ref();
        let takes_notices = client.is_some_and(|client| client.notices.is_some());
        self.open.set_client(meta::device(request.meta.as_ref())?, takes_notices);
        let media = self.agent().active_provider().capabilities();
        let prompts = schema::PromptCapabilities::new()
            .image(media.takes(MediaKind::Image))
            .audio(media.takes(MediaKind::Audio))
            .embedded_context(true);
        let sessions = schema::SessionCapabilities::new()
            .list(schema::SessionListCapabilities::new())
            .resume(schema::SessionResumeCapabilities::new())
            .close(schema::SessionCloseCapabilities::new())
            .delete(schema::SessionDeleteCapabilities::new())
            .fork(schema::SessionForkCapabilities::new());
        let agent = schema::AgentCapabilities::new()
            .load_session(true)
            .prompt_capabilities(prompts)
            .mcp_capabilities(self.servers().capabilities())
            .session_capabilities(sessions);
        let (name, version) = &self.open.options.info;
        Ok(schema::InitializeResponse::new(ProtocolVersion::V1)
            .agent_capabilities(agent)
            .agent_info(schema::Implementation::new(name.as_str(), version.as_str())))
    }

    async fn create(&self, request: schema::NewSessionRequest) -> Result<schema::NewSessionResponse> {
        let directory = directory(&request.cwd)?;
        let servers = self.servers().read(request.mcp_servers, directory)?;
        let workspace = self.workspace(request.meta.as_ref(), directory).await?;
        let patch = Patch::new().with_label(DIRECTORY_LABEL, directory);
        let id = self.agent().new_session(workspace, &patch).await.map_err(fault::of_store(None))?.id();
        self.open.add(id, self.servers().give(self.agent(), id, servers)?);
        let meta = meta::meta(&json!({ "workspace": workspace.to_string() }));
        Ok(schema::NewSessionResponse::new(id.to_string()).meta(meta))
    }

    /// Opens a session and sends its visible history.
    async fn load(
        &self,
        client: &ConnectionTo<Client>,
        request: schema::LoadSessionRequest,
    ) -> Result<Conversation> {
        let (id, meta) = (&request.session_id, request.meta.as_ref());
        let (chat, given) = self.opened_at(id, meta, &request.cwd, request.mcp_servers).await?;
        Updates::new(client, &self.open, &chat, chat.record().visible_from).replay().await?;
        self.open.add(chat.id(), given);
        Ok(chat)
    }

    async fn resume(&self, request: schema::ResumeSessionRequest) -> Result<Conversation> {
        let (id, meta) = (&request.session_id, request.meta.as_ref());
        let (chat, given) = self.opened_at(id, meta, &request.cwd, request.mcp_servers).await?;
        self.open.add(chat.id(), given);
        Ok(chat)
    }

    /// Answers the request that opened a session; then asks for the permission that the session waits for.
    fn opened<T: JsonRpcResponse>(
        &self,
        client: &ConnectionTo<Client>,
        responder: Responder<T>,
        opened: Result<Conversation>,
        response: T,
    ) {
        let chat = match opened {
            Ok(chat) => chat,
            Err(error) => return respond(responder, Err(error)),
        };
        respond(responder, Ok(response));
        if turn::waits_for_permission(&chat.record())
            && let Ok(turn) = self.open.begin_turn(chat.id())
        {
            let client = client.clone();
            self.open.spawn(async move { turn::ask_again(turn, &client).await });
        }
    }

    async fn list(&self, request: schema::ListSessionsRequest) -> Result<schema::ListSessionsResponse> {
        let mut query = SessionQuery::new().with_limit(PAGE);
        if let Some(cursor) = &request.cursor {
            let cursor = cursor.parse::<Cursor>().map_err(|error| {
                fault::invalid(format!("cursor {}: {error}", agent_core::text::quoted(cursor)))
            })?;
            query = query.with_cursor(Some(cursor));
        }
        let at = request.cwd.as_deref().map(directory).transpose()?;
        if let Some(directory) = at {
            query = query.with_label(DIRECTORY_LABEL, directory);
        }
        if !self.open.options.per_directory {
            match self.bound(request.meta.as_ref()).await? {
                Some(workspace) => query = query.with_workspace(workspace),
                None => return Ok(schema::ListSessionsResponse::new(Vec::new())),
            }
        }
        let page = self.agent().storage().sessions.list(query).await.map_err(fault::of_store(None))?;
        for damage in &page.damaged {
            warn!(%damage, "a session is missing in a list");
        }
        let sessions = page.items.into_iter().map(|session| {
            let directory =
                session.attributes.labels.get(DIRECTORY_LABEL).map_or(NO_DIRECTORY, String::as_str);
            schema::SessionInfo::new(session.id.to_string(), directory)
                .title(session.attributes.title.map(|title| title.text))
                .updated_at(session.last_active_at.to_string())
        });
        let next = page.next.map(|cursor| cursor.to_string());
        Ok(schema::ListSessionsResponse::new(sessions.collect()).next_cursor(next))
    }

    /// Cancels the turn of a session, waits for its end, and forgets the session. Nothing is removed from the store.
    async fn close(&self, request: schema::CloseSessionRequest) -> Result<schema::CloseSessionResponse> {
        let id = session_id(&request.session_id)?;
        if !self.open.forget(id).await {
            self.session(id, request.meta.as_ref()).await?;
        }
        Ok(schema::CloseSessionResponse::new())
    }

    async fn delete(&self, request: schema::DeleteSessionRequest) -> Result<schema::DeleteSessionResponse> {
        let id = session_id(&request.session_id)?;
        let found = self.session(id, request.meta.as_ref()).await;
        self.open.forget(id).await;
        // The protocol wants success for a session that is not there.
        match found {
            Ok(chat) => match chat.delete().await {
                Err(error) if error.is_absent() || *error.kind() == ErrorKind::Deleted => {}
                deleted => deleted.map_err(fault::of_store(Some(id)))?,
            },
            Err(error) if fault::is_absent(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(schema::DeleteSessionResponse::new())
    }

    async fn fork(&self, request: schema::ForkSessionRequest) -> Result<schema::ForkSessionResponse> {
        let id = session_id(&request.session_id)?;
        let directory = directory(&request.cwd)?;
        let servers = self.servers().read(request.mcp_servers, directory)?;
        let parent = self.session(id, request.meta.as_ref()).await?;
        let fork = parent.fork(Fork::new()).await.map_err(fault::of_store(Some(id)))?;
        place(&fork, directory).await?;
        self.open.add(fork.id(), self.servers().give(self.agent(), fork.id(), servers)?);
        Ok(schema::ForkSessionResponse::new(fork.id().to_string()))
    }

    /// Opens a session that exists, if it has no turn here, and records the directory in which it goes on.
    async fn opened_at(
        &self,
        id: &schema::SessionId,
        meta: Option<&schema::Meta>,
        cwd: &Path,
        servers: Vec<schema::McpServer>,
    ) -> Result<(Conversation, GivenServers)> {
        let id = session_id(id)?;
        let directory = directory(cwd)?;
        let servers = self.servers().read(servers, directory)?;
        self.open.check_idle(id)?;
        let chat = self.session(id, meta).await?;
        place(&chat, directory).await?;
        let given = self.servers().give(self.agent(), id, servers)?;
        Ok((chat, given))
    }

    /// Returns a session that the client may use: one that it has open, or that its list shows. Any other one is not
    /// found, as if it did not exist.
    async fn session(&self, id: SessionId, meta: Option<&schema::Meta>) -> Result<Conversation> {
        let chat = self.agent().conversation_by_id(id).await.map_err(fault::of_store(Some(id)))?;
        if self.open.has(id) || self.is_listed(&chat.record(), meta).await? {
            return Ok(chat);
        }
        let absent = agent_core::Error::not_found(format!("session {id} does not exist"));
        Err(fault::store(&absent, Some(id)))
    }

    /// Returns whether the list of a client shows a session.
    async fn is_listed(&self, now: &SessionRecord, meta: Option<&schema::Meta>) -> Result<bool> {
        let is_visible = self.open.options.per_directory || self.bound(meta).await? == Some(now.workspace);
        Ok(is_visible && !now.status.state.is_hidden())
    }

    /// Returns the workspace for a new session, which is made if it does not exist.
    async fn workspace(&self, meta: Option<&schema::Meta>, directory: &str) -> Result<WorkspaceId> {
        let device = if self.open.options.per_directory {
            Some(meta::device_of(&format!("directory {directory}"))?)
        } else {
            self.device(meta)?
        };
        let workspaces = self.agent().workspaces();
        let workspace = match device {
            Some(device) => {
                let name = &device.as_str()[..device.as_str().floor_char_boundary(200)];
                let resolved = workspaces.resolve_or_create(&device, &NewWorkspace::new(name)).await;
                resolved.map(|resolved| resolved.workspace)
            }
            None => workspaces.default_workspace().await,
        };
        Ok(workspace.map_err(fault::of_store(None))?.id)
    }

    /// Returns the workspace of the device; `None` if it is bound to none.
    async fn bound(&self, meta: Option<&schema::Meta>) -> Result<Option<WorkspaceId>> {
        match self.device(meta)? {
            Some(device) => {
                self.agent().storage().bindings.resolve(&device).await.map_err(fault::of_store(None))
            }
            None => Ok(Some(WorkspaceId::DEFAULT)),
        }
    }

    /// Returns the device that the request names, or else the client, or else the host.
    fn device(&self, meta: Option<&schema::Meta>) -> Result<Option<DeviceId>> {
        let named = meta::device(meta)?.or_else(|| self.open.device());
        Ok(named.or_else(|| self.open.options.device.clone()))
    }
}

fn respond<T: JsonRpcResponse>(responder: Responder<T>, response: Result<T>) {
    if responder.respond_with_result(response).is_err() {
        debug!("the client was gone before its request was answered");
    }
}

/// Records the directory in which a session goes on, if it is another one.
async fn place(chat: &Conversation, directory: &str) -> Result<()> {
    let now = chat.record();
    // It may be archived by somebody else while it is open here.
    if now.attributes.labels.get(DIRECTORY_LABEL).is_some_and(|label| label == directory)
        || now.status.state == SessionState::Archived
    {
        return Ok(());
    }
    let patch = Patch::new().with_label(DIRECTORY_LABEL, directory);
    chat.update(patch).await.map_err(fault::of_store(Some(chat.id())))
}

/// Returns the id that a client gave, as an id of a session.
fn session_id(id: &schema::SessionId) -> Result<SessionId> {
    id.0.parse().map_err(|error| {
        fault::invalid(format!("{} is no session id: {error}", agent_core::text::quoted(&id.0)))
            .data(json!({ "sessionId": &*id.0 }))
    })
}

/// Returns an absolute directory as text that a label can keep.
fn directory(cwd: &Path) -> Result<&str> {
    let why = match cwd.to_str() {
        _ if !cwd.is_absolute() => "must be an absolute path".to_owned(),
        Some(text) if text.len() <= DIRECTORY_MAX_BYTES => return Ok(text),
        Some(text) => format!("has {} bytes, more than {DIRECTORY_MAX_BYTES}", text.len()),
        None => "is not valid UTF-8".to_owned(),
    };
    Err(fault::invalid(format!("cwd {} {why}", agent_core::text::quoted(&cwd.to_string_lossy()))))
}
