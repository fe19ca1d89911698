//! A session with a word in each member that can hold one.

use std::sync::Arc;

use agent_core::Storage;
use agent_core::commit::{Commit, LeaseRequest, Precondition, RunEnd, Trigger};
use agent_core::event::{Media, Message, NewEvent, Part, ToolOutcome};
use agent_core::json::RawJson;
use agent_core::model::{
    ActionKind, ExternalHandle, Failure, Patch, PendingAction, Resource, Timer, Title, Workspace,
};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::Reason;
use agent_core::store::PutBlob;

/// A word that nobody may see.
pub(crate) const WORD: &str = "treasure-4711";

pub(crate) fn secret(of: &str) -> String {
    format!("{WORD} of {of}")
}

/// A session with a word in each place where one can be, in a workspace with words, too. Ends with an open question.
pub(crate) async fn wordy(storage: &Storage) -> Arc<SessionRecord> {
    let (effects, sessions) = (storage.effects(), &storage.sessions);
    let workspace =
        Workspace::new(effects.new_workspace_id(), secret("name"), effects.new_session_id(), effects.now())
            .with_provider(secret("provider"))
            .with_description(secret("description"))
            .with_setting(secret("setting"), RawJson::of(&secret("value")).unwrap());
    let workspace = storage.workspaces.put(workspace, Precondition::MustNotExist).await.unwrap();
    let config = format!("prompt = \"{}\"", secret("configuration"));
    storage.workspaces.save_config(workspace.id, Some(config), Precondition::MustNotExist).await.unwrap();
    let patch = Patch::new()
        .with_title(Title::by_user(secret("title")))
        .with_label(secret("label"), secret("label value"))
        .with_metadata(secret("metadata"), RawJson::of(&[secret("metadata value")]).unwrap())
        .with_reference(secret("reference"), secret("reference value"))
        .with_resources(vec![Resource::new(secret("kind"), secret("source"), secret("mount"))])
        .mount(secret("mounted"), agent_core::model::Access::Read)
        .with_handle(
            secret("handle"),
            ExternalHandle::new(secret("kind"), secret("target")).with_note(secret("note")),
        );
    let new = NewSession::new(effects.new_session_id(), workspace.id).with_patch(&patch);
    let session = sessions.create(new).await.unwrap();
    let id = session.id;
    let picture = PutBlob::of_bytes(id, secret("picture").repeat(1000));
    let media = Media::blob("image/png", picture.blob.name, picture.blob.bytes).with_name(secret("file"));
    sessions.blobs().put(picture).await.unwrap();
    let document = agent_core::event::DocumentWritten::after(None, secret("document"), Some(secret("text")));
    let timer = Timer::new(secret("timer"), effects.now()).with_note(secret("timer note"));
    let events = vec![
        NewEvent::from(Message::new(secret("message")).with_part(Part::Image(media)))
            .with_extra(secret("field"), RawJson::of(&secret("field value")).unwrap()),
        NewEvent::updated(patch.with_label(secret("other label"), secret("other value"))),
        NewEvent::document_written(document),
        NewEvent::timer_scheduled(timer),
        NewEvent::new("x.host.noted".parse().unwrap(), RawJson::of(&secret("own payload")).unwrap()),
        NewEvent::system_prompt(secret("prompt")),
    ];
    let done = sessions.append(id, session.head, events).await.unwrap();
    let run = effects.new_run_id();
    let begin = Commit::seal(effects, id, done.last)
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("laptop", run)));
    let begun = sessions.commit(begin).await.unwrap();
    let call = "call-1".parse().unwrap();
    let input = RawJson::of(&secret("input")).unwrap();
    let question =
        PendingAction::new("call-1".parse().unwrap(), ActionKind::ToolConfirmation, secret("question"))
            .with_choices([secret("choice")])
            .with_call(secret("tool"), None);
    let asked = Commit::seal(effects, id, begun.last)
        .with_fence(run, begun.epoch.unwrap())
        .with_events([
            NewEvent::agent_message(secret("answer")),
            NewEvent::tool_use(call, secret("tool"), input),
        ])
        .with_trigger(Trigger::EndRun(RunEnd::Await(question)));
    sessions.commit(asked).await.unwrap().session
}

/// Fails the session, with words, after its call has a result with words.
pub(crate) async fn failed(storage: &Storage, session: &SessionRecord) -> Arc<SessionRecord> {
    let output = RawJson::of(&secret("output")).unwrap();
    let result = NewEvent::tool_result("call-1".parse().unwrap(), ToolOutcome::Ok, output);
    let fail =
        Trigger::Fail(Failure::new(Reason::RunError, secret("failure")).with_fault(Some(secret("fault"))));
    let commit =
        Commit::seal(storage.effects(), session.id, session.head).with_event(result).with_trigger(fail);
    storage.sessions.commit(commit).await.unwrap().session
}
