//! Every public future can be sent to another thread: a handler of a server and a spawned task may await it.
//!
//! Compiling the lists is the test: nothing in them is called. `docs` checks that they name each public future.
#![expect(dead_code, reason = "it is compiled, not called")]

use agent_admin::archive::Archive;
use agent_admin::audit::Audit;
use agent_admin::copy::StoreCopy;
use agent_admin::export::SessionExport;
use agent_admin::fence::fence_sessions;
use agent_admin::manifest::Manifest;
use agent_admin::salvage::salvage;
use agent_admin::usage::usage;
use agent_admin::verify::{Verification, verify, verify_shared, verify_tenant};
use agent_core::isolated::Isolated;
use agent_core::model::Workspace;
use agent_core::session::Fork;
use agent_core::store::{
    BlobChunks, BlobContent, BlobInfo, HiddenSession, LeaseWatch, Purge, Registry, check_no_live_run,
    coming_events, needed_by_forks, next_events, observed,
};
use agent_core::{MemoryStore, OpenState, SessionStore, Sessions, Storage};
use agent_runtime::context::ModelContext;
use agent_runtime::{
    ActionAnswer, AgentRuntime, Conversation, Run, Scheduler, SessionContext, ToolContext, WorkspaceHandle,
    WorkspaceManager,
};
use agent_storage_conformance::history::History;
use agent_storage_fs::{FsConfig, FsStore};
use agent_storage_sqlite::{SqliteConfig, SqliteStore};
use agent_workspace::agents::Agents;
use agent_workspace::areas::DurableArea;
use agent_workspace::blobs::Spool;
use agent_workspace::documents::Documents;
use agent_workspace::erasure::{Eraser, verify_erased};
use agent_workspace::files::WorkspaceFiles;
use agent_workspace::learnings::Learnings;
use agent_workspace::mounts::{effective_mounts, freeze_mounts, inherited_mounts, update_scope};
use agent_workspace::retention::Erase;
use agent_workspace::secrets::Secrets;
use agent_workspace::state_payload::StatePayload;
use agent_workspace::views::{SessionView, active_sessions, compare, find_sessions};
use bytes::Bytes;
use futures::Stream;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::path::PathBuf;

/// Fails to compile for a future that is not `Send`.
fn send(_: impl Future + Send) {}

/// Fails to compile for a stream that is not `Send`.
fn stream(_: impl Stream + Send) {}

/// Stands for an argument of any type: nothing here is called.
fn of<T>() -> T {
    unreachable!()
}

fn agent_core() {
    send(of::<Isolated<BoxFuture<'static, ()>>>());
    stream(of::<Isolated<BoxStream<'static, ()>>>());
    send(Registry::open(of(), of()));
    send(Sessions::search(of(), of()));
    send(Sessions::update_search_index(of()));
    send(Sessions::remove_search_index(of()));
    send(agent_core::search::before_restore(of()));
    send(BlobInfo::of_stream(of()));
    send(BlobChunks::next(of()));
    send(BlobChunks::into_bytes(of()));
    send(BlobContent::into_bytes(of(), of()));
    send(HiddenSession::find(of(), of()));
    send(HiddenSession::open(of(), of()));
    send(coming_events(of::<&dyn SessionStore>(), of(), of()));
    send(next_events(of::<&dyn SessionStore>(), of(), of()));
    send(check_no_live_run(of()));
    send(LeaseWatch::begin(of::<&dyn SessionStore>(), of()));
    send(LeaseWatch::check(of(), of::<&dyn SessionStore>()));
    send(LeaseWatch::check_with(of(), of::<&dyn SessionStore>(), of()));
    send(MemoryStore::close(of()));
    send(OpenState::closed(of()));
    send(OpenState::close(of(), async { Ok(()) }));
    send(needed_by_forks(of::<&dyn SessionStore>(), of()));
    send(observed(of(), of::<BoxFuture<'static, agent_core::Result<()>>>()));
    send(Purge::sparing_forks(of(), of::<&dyn SessionStore>()));
    send(Sessions::report_to_parent(of(), of(), of(), of()));
    send(Sessions::note_report(of(), of(), of()));
    send(Storage::close(of()));
    send(Sessions::create(of(), of()));
    send(Sessions::append(of(), of(), of(), of()));
    send(Sessions::trigger(of(), of(), of()));
    send(Sessions::update(of(), of(), of(), of()));
    send(Sessions::clear(of(), of()));
    send(Sessions::compact(of(), of(), of(), of::<String>()));
    send(Sessions::replace(of(), of(), of(), of()));
    send(Sessions::fork(of(), of(), of::<agent_core::Seq>()));
    send(Sessions::plan_fork(of(), of(), of(), of::<Fork>()));
    send(Sessions::create_child(of(), of(), of()));
    send(Sessions::report_child(of(), of(), of()));
}

fn agent_runtime() {
    send(ModelContext::read(of::<&dyn SessionStore>(), of(), of()));
    send(AgentRuntime::conversation(of(), of()));
    send(AgentRuntime::search(of(), of()));
    send(AgentRuntime::find_conversation(of(), of()));
    send(AgentRuntime::conversation_with(of(), of(), "text"));
    send(AgentRuntime::recreate_conversation(of(), of()));
    send(AgentRuntime::erase_conversation(of(), of()).into_future());
    send(WorkspaceHandle::conversation(of(), of()));
    send(WorkspaceHandle::find_conversation(of(), of()));
    send(WorkspaceHandle::conversation_with(of(), of(), "text"));
    send(WorkspaceHandle::recreate_conversation(of(), of()));
    send(WorkspaceHandle::search(of(), of()));
    send(WorkspaceHandle::erase_conversation(of(), of()).into_future());
    send(AgentRuntime::open(of(), of()));
    send(AgentRuntime::open_main(of(), of()));
    send(AgentRuntime::conversation_by_id(of(), of()));
    send(AgentRuntime::new_session(of(), of(), of()));
    send(Conversation::generate_title(of(), of()));
    send(agent_runtime::generate_text(of(), of(), of()));
    send(AgentRuntime::run_pending(of(), of()));
    send(Conversation::refresh(of()));
    send(Conversation::prompt(of(), "text"));
    send(Conversation::ask(of(), "text"));
    send(Conversation::send(of(), "text"));
    send(Conversation::wait_for_answer(of(), of()));
    send(Conversation::run_pending(of()));
    send(Conversation::schedule(of(), of()));
    send(Conversation::cancel_timer(of(), of()));
    send(Conversation::run_when_free(of()));
    send(Conversation::answer(of(), of::<ActionAnswer>()));
    send(Conversation::answer_and_run(of(), of::<ActionAnswer>()));
    send(Conversation::pending_call(of()));
    send(Conversation::interrupt(of()));
    send(Conversation::search(of(), of()));
    send(Conversation::history(of(), of()));
    send(Conversation::fork(of(), of::<Fork>()));
    send(Conversation::edit(of(), of(), "text"));
    send(Conversation::retry(of()));
    send(Conversation::rewind(of(), of()));
    send(Conversation::undo(of()));
    send(Conversation::branches(of(), of()));
    send(Conversation::restore(of(), of()));
    send(Conversation::in_place(of()));
    send(Conversation::suspend(of()));
    send(Conversation::resume(of()));
    send(Conversation::clear(of()));
    send(Conversation::compact(of(), of(), of()));
    send(Conversation::set_title(of(), of()));
    send(Conversation::set_system_prompt(of(), of()));
    send(Conversation::define_outcome(of(), "text"));
    send(Conversation::register_artifact(of(), of()));
    send(Conversation::update(of(), of()));
    send(Conversation::update_unchanged(of(), of()));
    send(Conversation::clear_failure(of()));
    send(Conversation::archive(of()));
    send(Conversation::unarchive(of()));
    send(Conversation::terminate(of()));
    send(Conversation::delete(of()));
    send(Conversation::erase(of()).into_future());
    send(of::<Erase<'static>>().into_future());
    send(Conversation::reset(of(), of()));
    send(Conversation::stats(of()));
    send(Conversation::start_child(of(), "text", of()));
    send(Conversation::use_host_config(of()));
    send(Conversation::put_media(of(), "text", of::<Bytes>()));
    send(Conversation::put_media_content(of(), "text", of(), of()));
    send(Conversation::put_media_stream(of(), "text", of()));
    send(Conversation::media_bytes(of(), of(), of()));
    send(Conversation::media_content(of(), of()));
    send(Conversation::media_range(of(), of(), of()));
    send(Conversation::output_content(of(), of()));
    send(Conversation::output_range(of(), of(), of()));
    send(AgentRuntime::shutdown(of(), of()));
    send(AgentRuntime::close(of()));
    send(ToolContext::is_mounted(of(), of(), of()));
    send(ToolContext::secret(of(), of()));
    stream(of::<Run>());
    send(Run::next(of()));
    send(Run::finish(of()));
    send(Scheduler::run(of()));
    send(Scheduler::round(of()));
    send(SessionContext::secret(of(), of()));
    send(SessionContext::workspace_config(of()));
}

fn agent_workspace() {
    send(Eraser::preview(of()));
    send(Eraser::run(of()));
    send(Eraser::settle(of()));
    send(verify_erased(of(), of(), of()));
    send(Agents::register(of(), of(), of(), of()));
    send(Agents::get(of(), of()));
    send(Agents::list(of(), of(), of()));
    send(Agents::request(of(), of(), of()));
    send(Agents::build(of(), of(), of()));
    send(Agents::builds(of(), of(), of(), of()));
    send(Agents::resolve(of(), of()));
    send(Agents::claim(of(), of(), of(), of()));
    send(Agents::heartbeat(of(), of()));
    send(Agents::complete(of(), of(), of()));
    send(Agents::fail(of(), of(), of()));
    send(Agents::prune(of(), of(), of(), of()));
    send(DurableArea::put(of(), of(), "text", of()));
    send(DurableArea::get(of(), of()));
    send(DurableArea::list(of()));
    send(DurableArea::remove(of(), of(), of()));
    send(Documents::list(of()));
    send(Documents::get(of(), of()));
    send(Documents::versions(of(), of(), of()));
    send(Documents::version(of(), of(), of()));
    send(Documents::put(of(), of()));
    send(Documents::restore(of(), of(), of(), of()));
    send(Documents::save_ui(of(), of()));
    send(WorkspaceFiles::put(of(), of(), of::<Bytes>(), of()));
    send(WorkspaceFiles::put_content(of(), of(), of(), of, of()));
    send(WorkspaceFiles::get(of(), of(), of()));
    send(WorkspaceFiles::read(of(), of()));
    send(WorkspaceFiles::list(of()));
    send(WorkspaceFiles::delete(of(), of(), of()));
    send(Learnings::add(of(), of(), of()));
    send(Learnings::list(of(), of(), of()));
    send(Learnings::promote(of(), of(), of()));
    send(Learnings::memory(of()));
    send(effective_mounts(of(), of()));
    send(inherited_mounts(of(), of()));
    send(update_scope(of(), of(), of()));
    send(freeze_mounts(of(), of()));
    send(WorkspaceManager::delete_session(of(), of()));
    send(WorkspaceManager::delete(of(), of()));
    send(WorkspaceManager::gc(of(), of()));
    send(WorkspaceManager::sweep(of(), of()));
    send(WorkspaceManager::apply(of(), of()));
    send(WorkspaceManager::purge(of(), of()));
    send(WorkspaceManager::reset(of(), of(), of()));
    send(WorkspaceManager::successor(of(), of(), of(), of()));
    send(WorkspaceManager::supersede(of(), of(), of()));
    send(WorkspaceManager::superseded(of(), of(), of()));
    send(WorkspaceManager::in_place(of(), of()));
    send(WorkspaceManager::erase(of(), of()).into_future());
    send(Secrets::reveal(of(), of(), of()));
    send(StatePayload::export(of::<&dyn SessionStore>(), of()));
    send(StatePayload::import(of(), of(), of(), of()));
    send(active_sessions(of(), of()));
    send(SessionView::runs(of(), of(), of()));
    send(SessionView::run(of(), of()));
    send(SessionView::trace(of(), of()));
    send(find_sessions(of(), of(), of()));
    send(compare(of(), of(), of(), of()));
    send(SessionView::latest(of(), of()));
    send(SessionView::around(of(), of(), of(), of()));
    send(SessionView::artifacts(of(), of(), of(), of()));
    send(SessionView::branches(of(), of()));
    send(SessionView::siblings(of()));
    send(SessionView::topic(of()));
    send(SessionView::outcome(of()));
    send(SessionView::outcomes(of(), of()));
    send(WorkspaceManager::resolve(of(), of()));
    send(WorkspaceManager::resolve_or_create(of(), of(), of()));
    send(WorkspaceManager::default_workspace(of()));
    send(WorkspaceManager::create(of(), of()));
    send(WorkspaceManager::load(of(), of()));
    send(WorkspaceManager::list(of(), of()));
    send(WorkspaceManager::touch(of(), of()));
    send(WorkspaceManager::update(of(), of(), |_: &mut Workspace| ()));
    send(WorkspaceManager::rename(of(), of(), of()));
    send(WorkspaceManager::bind(of(), of(), of()));
    send(WorkspaceManager::unbind(of(), of()));
    send(WorkspaceManager::bindings(of(), of()));
    send(WorkspaceManager::main_session(of(), of()));
    send(WorkspaceManager::set_main_session(of(), of(), of()));
    send(WorkspaceManager::new_session(of(), of(), of()));
    send(WorkspaceManager::last_session(of(), of(), of()));
    send(WorkspaceManager::latest_session(of(), of()));
    send(WorkspaceManager::create_session(of(), of()));
    send(WorkspaceManager::confirm_created(of(), of()));
    send(WorkspaceManager::lookup_conversation(of(), of(), of(), of()));
    send(WorkspaceManager::newest_conversation(of(), of(), of()));
    send(WorkspaceManager::unless_raced(of(), of(), of::<agent_core::Result<()>>()));
    send(WorkspaceManager::erase_unless_held(of(), of(), of(), |_| false));
    send(Spool::copy(of()));
}

fn agent_admin() {
    send(Archive::open(of()));
    send(Archive::import(of(), of::<&dyn SessionStore>()));
    send(Archive::import_with_ancestors(of(), of::<&dyn SessionStore>()));
    send(Audit::list(of(), of(), of()));
    send(StoreCopy::run(of()));
    send(SessionExport::read(of::<&dyn SessionStore>(), of(), |_: u64| ()));
    send(Manifest::export(of::<&dyn SessionStore>(), of()));
    send(Manifest::import(of(), of::<&dyn SessionStore>()));
    send(Manifest::import_with_ancestors(of(), of::<&dyn SessionStore>()));
    send(fence_sessions(of()));
    send(salvage(of(), of(), of()));
    send(usage(of(), of(), of()));
    send(verify(of(), |_: &Verification| ()));
    send(verify_tenant(of(), |_: &Verification| ()));
    send(verify_shared(of()));
}

fn agent_storage_fs() {
    send(FsStore::convert_export(of::<PathBuf>(), of::<PathBuf>()));
    send(FsStore::open(of::<PathBuf>()));
    send(FsStore::open_default());
    send(FsStore::load_global_config(of()));
    send(FsStore::transcript_edits(of(), of()));
    send(FsStore::import_transcript(of(), of(), of()));
    send(FsStore::close(of()));
    send(FsConfig::open(of()));
}

fn agent_storage_sqlite() {
    send(SqliteStore::open(of::<PathBuf>()));
    send(SqliteStore::backup(of(), of::<PathBuf>()));
    send(SqliteStore::convert_export(of::<PathBuf>(), of::<PathBuf>()));
    send(SqliteStore::rebuild_all(of()));
    send(SqliteStore::maintain(of()));
    send(SqliteStore::close(of()));
    send(SqliteConfig::open(of()));
}

fn agent_storage_conformance() {
    send(History::commit(of(), of(), of(), of()));
    send(History::load(of(), of(), of(), of()));
    send(History::read(of(), of(), of(), of()));
    send(History::purge(of(), of(), of(), of()));
}
