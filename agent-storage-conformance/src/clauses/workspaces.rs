//! Workspaces and their configuration: promises of the trait besides the contracts.

use agent_core::commit::Precondition;
use agent_core::json::RawJson;
use agent_core::model::{Actor, Role, Workspace};
use agent_core::store::{ContentHash, WorkspaceQuery};
use agent_core::{ErrorKind, Revision, Storage, Timestamp, WorkspaceId, WorkspaceStoreExt};

use crate::failure::{Checked, Failure, holds_for, refused, same};
use crate::registry::{Clause, Needs, table};
use crate::stage::{START, Stage, ends, race, split};

pub(super) fn clauses() -> Vec<Clause> {
    table![Workspaces:
        workspace_is_loaded_as_it_was_put,
        a_second_creation_changes_nothing,
        a_put_of_an_old_revision_changes_nothing,
        only_a_creation_creates_a_workspace,
        default_workspace_behaves_like_any_other,
        touch_changes_only_the_access_time,
        touches_and_loads_do_not_interfere (Needs::ExactRecency),
        workspaces_are_listed_by_last_access (Needs::ExactRecency),
        pages_neither_skip_nor_repeat_if_times_tie (Needs::ImmediateLists),
        pages_lose_nothing_while_workspaces_are_used (Needs::ImmediateLists),
        deleted_workspace_id_is_never_reused,
        configuration_is_kept_byte_for_byte_or_absent,
        stale_configuration_change_is_refused,
        settings_and_unknown_fields_are_kept,
        oversized_fields_are_refused_before_any_write,
    ]
}

async fn all(storage: &Storage, query: WorkspaceQuery) -> Checked<Vec<Workspace>> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = storage.workspaces.list(query.clone().with_cursor(cursor)).await?;
        if page.items.len() > query.limit {
            return Err(Failure::new("a page", format_args!("at most {}", query.limit), page.items.len()));
        }
        found.extend(page.items);
        ends(found.len())?;
        cursor = page.next;
        if cursor.is_none() {
            return Ok(found);
        }
    }
}

fn full(stage: &Stage) -> Checked<Workspace> {
    Ok(stage
        .workspace("Küche \"1\" \\ 한국어 👩‍👩‍👧")
        .with_provider("claude")
        .with_description("line one\nline two\r\n\t[bindings]\n\"\"\" ''' \\ \u{0}\u{1}")
        .with_creator(Actor::named(Role::User, "alice = \"x\"")?)
        .with_setting("zeta", RawJson::parse("{\"b\":1,\"a\":[1e400,12345678901234567890123]}")?)
        .with_setting("alpha key", RawJson::parse("\"\\u0000 text\"")?))
}

/// A record is returned as it was put, with revision 1, on every handle and after reopening.
async fn workspace_is_loaded_as_it_was_put(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let workspace = full(stage)?;
    let stored = storage.workspaces.create(workspace.clone()).await?;
    same("its revision", &stored.revision, &Revision::new(1))?;
    let mut expected = workspace;
    expected.revision = stored.revision;
    same("what `put` returns", &stored, &expected)?;
    same("what another handle loads", &stage.open().await?.workspaces.load(stored.id).await?, &expected)?;
    storage = stage.reopen(storage).await?;
    same("what is loaded after reopening", &storage.workspaces.load(stored.id).await?, &expected)?;
    same("its configuration", &storage.workspaces.load_config(stored.id).await?, &None)?;
    same("both at once", &storage.workspaces.load_with_config(stored.id).await?, &(expected.clone(), None))?;
    let text = Some("a = 1".to_owned());
    storage.workspaces.save_config(stored.id, text.clone(), Precondition::MustNotExist).await?;
    same("both at once, later", &storage.workspaces.load_with_config(stored.id).await?, &(expected, text))
}

/// Creating an existing id is a `Conflict`, and changes nothing.
async fn a_second_creation_changes_nothing(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let stored = storage.workspaces.create(full(stage)?).await?;
    storage.workspaces.save_config(stored.id, Some("a = 1".to_owned()), Precondition::MustNotExist).await?;
    let again = stage.workspace("usurper");
    let again = Workspace::new(stored.id, "usurper", again.main_session, again.created_at);
    refused!("a second creation", storage.workspaces.create(again).await, ErrorKind::Conflict { .. })?;
    same("the record", &storage.workspaces.load(stored.id).await?, &stored)?;
    same("the configuration", &storage.workspaces.load_config(stored.id).await?.as_deref(), &Some("a = 1"))
}

/// A put succeeds from the newest revision and from no other, however often it is tried.
async fn a_put_of_an_old_revision_changes_nothing(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let first = stage.new_workspace(&storage).await?;
    let second = storage.workspaces.update(first.clone().with_description("new")).await?;
    same("the revision", &second.revision, &first.revision.next())?;
    for _ in 0..3 {
        let stale = storage.workspaces.update(first.clone().with_name("stale")).await;
        refused!("a put of an old revision", stale, ErrorKind::Conflict { .. })?;
    }
    let ahead = storage.workspaces.put(second.clone(), Precondition::Matches(second.revision.next())).await;
    refused!("a put of a revision to come", ahead, ErrorKind::Conflict { .. })?;
    same("the record", &storage.workspaces.load(first.id).await?, &second)?;
    let any = storage.workspaces.put(first.with_name("forced"), Precondition::MustExist).await?;
    same("the revision of a put without an expectation", &any.revision, &second.revision.next())
}

/// Only a creation creates a workspace. Every other call returns `NotFound` for one that never existed, and creates
/// none.
async fn only_a_creation_creates_a_workspace(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let none = stage.workspace("nobody");
    let put = storage.workspaces.put(none.clone(), Precondition::MustExist).await;
    refused!("a put of any", put, ErrorKind::NotFound)?;
    let put = storage.workspaces.put(none.clone(), Precondition::Matches(Revision::new(1))).await;
    refused!("a put of a revision", put, ErrorKind::NotFound)?;
    refused!("a load", storage.workspaces.load(none.id).await, ErrorKind::NotFound)?;
    refused!("a touch", storage.workspaces.touch(none.id, START).await, ErrorKind::NotFound)?;
    refused!("a deletion", storage.workspaces.delete(none.id).await, ErrorKind::NotFound)?;
    refused!("its configuration", storage.workspaces.load_config(none.id).await, ErrorKind::NotFound)?;
    let saved =
        storage.workspaces.save_config(none.id, Some(String::new()), Precondition::MustNotExist).await;
    refused!("a configuration", saved, ErrorKind::NotFound)?;
    same("all workspaces", &all(&storage, WorkspaceQuery::new()).await?, &vec![])
}

/// The default workspace has its own id, and is stored like any other.
async fn default_workspace_behaves_like_any_other(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let other = stage.new_workspace(&storage).await?;
    let template = stage.workspace("default");
    let default = Workspace::new(WorkspaceId::DEFAULT, "default", template.main_session, template.created_at);
    let stored = storage.workspaces.create(default).await?;
    storage = stage.reopen(storage).await?;
    same("the default workspace", &storage.workspaces.load("default".parse()?).await?, &stored)?;
    same("the other", &storage.workspaces.load(other.id).await?, &other)?;
    same("the number of workspaces", &all(&storage, WorkspaceQuery::new()).await?.len(), &2)
}

/// A touch keeps the later of two times, and changes neither the revision nor anything else.
async fn touch_changes_only_the_access_time(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let stored = storage.workspaces.create(full(stage)?).await?;
    let later = stored.last_accessed.plus_micros(3_600_000_000);
    for at in [later, stored.last_accessed, Timestamp::MIN] {
        storage.workspaces.touch(stored.id, at).await?;
    }
    let mut expected = stored.clone();
    expected.last_accessed = later;
    same("the record", &storage.workspaces.load(stored.id).await?, &expected)?;
    // A put of a record that was loaded before the touch does not turn the time back.
    let put = storage.workspaces.update(stored.with_description("changed")).await?;
    same("the last access after a put", &put.last_accessed, &later)
}

/// Eight tasks touch a workspace while others load and put it: no load fails, and each sees a whole record.
async fn touches_and_loads_do_not_interfere(stage: &Stage) -> Checked {
    let handles = stage.handles(4).await?;
    let stored = handles[0].workspaces.create(full(stage)?).await?;
    let each = (stage.settings.rounds / 10).max(3);
    let results = race((0..12).map(|task| {
        let (store, mut now) = (handles[task % 4].workspaces.clone(), stored.clone());
        async move {
            for n in 0..each {
                match task {
                    0..8 => {
                        store.touch(now.id, START.plus_micros((n * 12 + task) as i64 * 1_000_000)).await?;
                    }
                    8 => now = store.update(now.clone().with_name(format!("name {n}"))).await?,
                    _ => {
                        let seen = store.load(now.id).await?;
                        if seen.settings != now.settings || seen.description != now.description {
                            return Ok(Some(seen));
                        }
                    }
                }
            }
            Ok::<_, agent_core::Error>(None)
        }
    }))
    .await?;
    let (seen, failed) = split(results);
    holds_for("nothing fails", &failed, failed.is_empty())?;
    holds_for("each load sees a whole record", &seen, seen.iter().all(Option::is_none))?;
    let last = handles[1].workspaces.load(stored.id).await?;
    let latest = START.plus_micros(((each - 1) * 12 + 7) as i64 * 1_000_000).max(stored.last_accessed);
    same("the last access", &last.last_accessed, &latest)?;
    same("the revision", &last.revision.get(), &(each as u64 + 1))
}

/// Creates workspaces whose times of last access are `gap` microseconds apart.
async fn some(stage: &Stage, storage: &Storage, count: usize, gap: i64) -> Checked<Vec<Workspace>> {
    let mut made = Vec::new();
    for n in 0..count {
        let template = stage.workspace("listed");
        let at = START.plus_micros(gap * n as i64);
        let workspace = Workspace::new(template.id, format!("workspace {n}"), template.main_session, at);
        made.push(storage.workspaces.create(workspace).await?);
    }
    Ok(made)
}

/// The latest accessed workspace comes first, totals count all, and a touch moves a workspace up.
async fn workspaces_are_listed_by_last_access(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let mut made = some(stage, &storage, 12, 60_000_000).await?;
    let mut first = made.remove(0);
    first.last_accessed = START.plus_micros(86_400_000_000);
    storage.workspaces.touch(first.id, first.last_accessed).await?;
    made.push(first);
    made.reverse();
    for limit in [1, 3, 11, 12, 50] {
        let listed = all(&storage, WorkspaceQuery::new().with_limit(limit)).await?;
        same(format_args!("the list, {limit} a page"), &listed, &made)?;
    }
    let page = storage.workspaces.list(WorkspaceQuery::new().with_limit(5).with_total()).await?;
    same("the total", &(page.total, page.items.len()), &(Some(12), 5))?;
    let reopened = stage.reopen(storage).await?;
    same("the list after reopening", &all(&reopened, WorkspaceQuery::new()).await?, &made)
}

/// If all times are equal, pages of any size hold each workspace once.
async fn pages_neither_skip_nor_repeat_if_times_tie(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let mut expected: Vec<_> =
        some(stage, &storage, 17, 0).await?.into_iter().map(|workspace| workspace.id).collect();
    expected.sort();
    for limit in [1, 2, 5, 16, 17] {
        let listed = all(&storage, WorkspaceQuery::new().with_limit(limit)).await?;
        let mut ids: Vec<_> = listed.iter().map(|workspace| workspace.id).collect();
        ids.sort();
        same(format_args!("the ids, {limit} a page"), &ids, &expected)?;
    }
    Ok(())
}

/// Use of some workspaces while pages are read does not make another one appear twice or not at all.
async fn pages_lose_nothing_while_workspaces_are_used(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let made = some(stage, &storage, 20, 60_000_000).await?;
    let (mut seen, mut cursor, mut moved) = (Vec::new(), None, Vec::new());
    for turn in 0.. {
        let page = storage.workspaces.list(WorkspaceQuery::new().with_limit(3).with_cursor(cursor)).await?;
        seen.extend(page.items.iter().map(|workspace| workspace.id));
        ends(seen.len())?;
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
        let id = made[(turn * 7) % 20].id;
        storage.workspaces.touch(id, START.plus_micros(86_400_000_000 + turn as i64)).await?;
        moved.push(id);
    }
    for workspace in made.iter().filter(|workspace| !moved.contains(&workspace.id)) {
        let times = seen.iter().filter(|id| **id == workspace.id).count();
        same(format_args!("how often {} was listed, which was not used", workspace.name), &times, &1)?;
    }
    Ok(())
}

/// A deleted workspace is `Deleted` in every call, is not listed, and its id is not used again.
async fn deleted_workspace_id_is_never_reused(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let gone = storage.workspaces.create(full(stage)?).await?;
    let kept = stage.new_workspace(&storage).await?;
    storage
        .workspaces
        .save_config(gone.id, Some("secret = 1".to_owned()), Precondition::MustNotExist)
        .await?;
    storage.workspaces.delete(gone.id).await?;
    storage.workspaces.delete(gone.id).await?;
    for _ in 0..2 {
        let store = &storage.workspaces;
        refused!("a load", store.load(gone.id).await, ErrorKind::Deleted)?;
        refused!("a creation", store.create(gone.clone()).await, ErrorKind::Deleted)?;
        refused!("a put", store.put(gone.clone(), Precondition::MustExist).await, ErrorKind::Deleted)?;
        refused!("an update", store.update(gone.clone()).await, ErrorKind::Deleted)?;
        refused!("a touch", store.touch(gone.id, START).await, ErrorKind::Deleted)?;
        refused!("its configuration", store.load_config(gone.id).await, ErrorKind::Deleted)?;
        let saved = store.save_config(gone.id, Some("a = 1".to_owned()), Precondition::MustExist).await;
        refused!("a configuration", saved, ErrorKind::Deleted)?;
        let listed = all(&storage, WorkspaceQuery::new().with_deleting()).await?;
        same("the list", &listed, &vec![kept.clone()])?;
        storage = stage.reopen(storage).await?;
    }
    Ok(())
}

/// The configuration is text that is returned byte for byte; it may be absent, and can be removed.
async fn configuration_is_kept_byte_for_byte_or_absent(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let id = stage.new_workspace(&storage).await?.id;
    same("at first", &storage.workspaces.load_config(id).await?, &None)?;
    let none = storage.workspaces.save_config(id, None, Precondition::MustExist).await;
    refused!("a removal where there is none", none, ErrorKind::Conflict { .. })?;
    let mut expect = Precondition::MustNotExist;
    for text in ["a = 1\n", "", "# no line end", "\r\n", "not toml at all [[", "\u{feff}키 = \"👩‍👩‍👧\"\n\u{0}"]
    {
        storage.workspaces.save_config(id, Some(text.to_owned()), expect).await?;
        expect = Precondition::MustExist;
        storage = stage.reopen(storage).await?;
        same("the configuration", &storage.workspaces.load_config(id).await?.as_deref(), &Some(text))?;
    }
    storage.workspaces.save_config(id, None, Precondition::MustExist).await?;
    same("after removing it", &storage.workspaces.load_config(id).await?, &None)
}

/// A change is refused if the configuration is not the one that its author has read.
async fn stale_configuration_change_is_refused(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let id = stage.new_workspace(&storage).await?.id;
    let save = |text: &str, expect| storage.workspaces.save_config(id, Some(text.to_owned()), expect);
    let hash = |text| Precondition::Matches(ContentHash::of(text));
    refused!("a change where there is none", save("b", hash("a")).await, ErrorKind::Conflict { .. })?;
    save("a", Precondition::MustNotExist).await?;
    refused!(
        "a creation where there is one",
        save("b", Precondition::MustNotExist).await,
        ErrorKind::Conflict { .. }
    )?;
    refused!("a change of another text", save("b", hash("x")).await, ErrorKind::Conflict { .. })?;
    same("the configuration", &storage.workspaces.load_config(id).await?.as_deref(), &Some("a"))?;
    save("b", hash("a")).await?;
    let removed = storage.workspaces.save_config(id, None, hash("a")).await;
    refused!("a removal of another text", removed, ErrorKind::Conflict { .. })?;
    same("the configuration", &storage.workspaces.load_config(id).await?.as_deref(), &Some("b"))
}

/// Settings of the host and fields of a newer version survive a load and a put, in their order, byte for byte.
async fn settings_and_unknown_fields_are_kept(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let mut workspace = full(stage)?;
    for (name, value) in [
        ("x_future", "{\"n\":123456789012345678901234567890.10,\"a\":null}"),
        ("another", "[1,2.0,-0.0,\"\\ud83d\\ude00\"]"),
        ("empty", "{}"),
        ("nothing", "null"),
    ] {
        workspace.extra.insert(name, RawJson::parse(value)?);
    }
    let mut stored = storage.workspaces.create(workspace.clone()).await?;
    same("what was put", &(&stored.settings, &stored.extra), &(&workspace.settings, &workspace.extra))?;
    for n in 0..3 {
        storage = stage.reopen(storage).await?;
        let loaded = storage.workspaces.load(stored.id).await?;
        same("the record", &loaded, &stored)?;
        stored = storage.workspaces.update(loaded.with_name(format!("name {n}"))).await?;
    }
    let listed = all(&storage, WorkspaceQuery::new()).await?;
    same("the record in the list", &listed, &vec![stored])
}

/// A name, a description, settings or a configuration beyond their limits are refused, and nothing is written.
async fn oversized_fields_are_refused_before_any_write(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let fine = stage.new_workspace(&storage).await?;
    let long = "x".repeat(70 << 10);
    for name in ["", "a\nb", &"x".repeat(257)] {
        let put = storage.workspaces.update(fine.clone().with_name(name)).await;
        refused!(format_args!("the name {name:.20?}"), put, ErrorKind::InvalidInput)?;
    }
    let put = storage.workspaces.update(fine.clone().with_description("x".repeat(4097))).await;
    refused!("a long description", put, ErrorKind::LimitExceeded)?;
    let put = storage.workspaces.update(fine.clone().with_setting("big", RawJson::of(&long)?)).await;
    refused!("large settings", put, ErrorKind::LimitExceeded)?;
    let large = "x".repeat(ContentHash::CONFIG_MAX_BYTES + 1);
    let saved = storage.workspaces.save_config(fine.id, Some(large), Precondition::MustNotExist).await;
    refused!("a large configuration", saved, ErrorKind::LimitExceeded)?;
    same("the record", &storage.workspaces.load(fine.id).await?, &fine)?;
    same("the configuration", &storage.workspaces.load_config(fine.id).await?, &None)?;
    let new = stage.workspace("x").with_name("");
    let id = new.id;
    refused!("a creation without a name", storage.workspaces.create(new).await, ErrorKind::InvalidInput)?;
    refused!("its load", storage.workspaces.load(id).await, ErrorKind::NotFound)?;
    let largest = "x".repeat(ContentHash::CONFIG_MAX_BYTES);
    storage.workspaces.save_config(fine.id, Some(largest.clone()), Precondition::MustNotExist).await?;
    same("the largest configuration", &storage.workspaces.load_config(fine.id).await?, &Some(largest))
}
