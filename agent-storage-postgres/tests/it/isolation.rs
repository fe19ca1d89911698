//! Row security: what statements see and change that have another tenant, another owner, or none.

use agent_core::commit::{Commit, Precondition};
use agent_core::event::{Media, Message, NewEvent, Part};
use agent_core::model::{Patch, Workspace};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::store::{
    BindingQuery, HiddenSession, Isolation, PutBlob, ReadBlob, ReadEvents, SessionQuery, WorkspaceArea,
    WorkspaceQuery,
};
use agent_core::{Backend, ErrorKind, OwnerId, SessionId, SessionStore, Storage, TenantId, WorkspaceId};
use agent_storage_postgres::PostgresStore;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Executor, Row};

use crate::support::OWNER;
use crate::{Scene, message};

const TABLES: [&str; 10] = [
    "sessions",
    "events",
    "labels",
    "due",
    "tombstones",
    "heartbeats",
    "blobs",
    "blob_chunks",
    "workspaces",
    "bindings",
];

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

fn owner(name: &str) -> OwnerId {
    name.parse().unwrap()
}

async fn session(scene: &Scene, storage: &Storage, workspace: WorkspaceId) -> SessionId {
    let new = NewSession::new(scene.effects.new_session_id(), workspace);
    storage.sessions.create(new).await.unwrap().id
}

async fn workspace(scene: &Scene, storage: &Storage) -> WorkspaceId {
    let id = scene.effects.new_workspace_id();
    let new = Workspace::new(id, "name", scene.effects.new_session_id(), scene.effects.now());
    storage.workspaces.put(new, Precondition::MustNotExist).await.unwrap().id
}

/// Fills each table with rows of the owner alice of the tenant acme: a session with a label and a blob that waits for a run.
async fn fill(scene: &Scene, store: &PostgresStore) -> std::sync::Arc<SessionRecord> {
    let alice = Backend::tenant(store, &tenant("acme")).for_owner(&owner("alice"));
    let place = workspace(scene, &alice).await;
    alice.bindings.bind(&"laptop".parse().unwrap(), place, Precondition::MustNotExist).await.unwrap();
    let id = session(scene, &alice, place).await;
    let put = PutBlob::of_bytes(id, b"bytes".to_vec());
    alice.sessions.blobs().put(put).await.unwrap();
    let head = alice.sessions.load(id).await.unwrap().head;
    let commit = Commit::seal(&scene.effects, id, head).with_events(message("hello"));
    let patch = Patch::default().with_label("colour", "green");
    let done = alice.sessions.commit(commit.with_event(NewEvent::updated(patch))).await.unwrap();
    for sql in [
        "INSERT INTO @.tombstones SELECT tenant, session, owner, 1, 0, 'text' FROM @.sessions",
        "INSERT INTO @.heartbeats SELECT tenant, session, owner, 1 FROM @.sessions",
        "INSERT INTO @.due SELECT tenant, session, owner, 1, state FROM @.sessions ON CONFLICT DO NOTHING",
    ] {
        scene.run(sql).await;
    }
    for table in TABLES {
        // What a program that sees nothing would have to know, to insert it.
        let copy = format!(
            "CREATE TABLE @.copy_of_{table} AS SELECT * FROM @.{table}; GRANT SELECT ON @.copy_of_{table} TO PUBLIC"
        );
        scene.run(&copy).await;
        assert!(scene.number(&format!("SELECT count(*) FROM @.{table}")).await > 0, "{table} is empty");
    }
    done.session
}

/// Connection of a user with settings.
pub(crate) async fn connect_as(scene: &Scene, user: &str, settings: &[(&str, &str)]) -> PgConnection {
    let mut conn = PgConnection::connect(&scene.address(user)).await.unwrap();
    for (name, value) in settings {
        let set = sqlx::query("SELECT set_config($1, $2, false)").bind(*name).bind(*value);
        conn.execute(set).await.unwrap();
    }
    conn
}

/// Runs a statement; returns the number of rows, or the SQLSTATE of the error.
pub(crate) async fn raw(conn: &mut PgConnection, scene: &Scene, sql: &str) -> Result<u64, String> {
    let sql = sql.replace("@.", &format!("\"{}\".", scene.schema));
    match conn.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await {
        Ok(done) => Ok(done.rows_affected()),
        Err(error) => Err(error.as_database_error().unwrap().code().unwrap().into_owned()),
    }
}

/// Returns a checksum of all rows.
async fn rows(scene: &Scene) -> Vec<String> {
    let mut conn = scene.connect().await;
    let mut sums = Vec::new();
    for table in TABLES {
        let sql = format!(
            "SELECT md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), '')) FROM \"{}\".{table} t",
            scene.schema
        );
        sums.push(conn.fetch_one(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap().get(0));
    }
    sums
}

/// Without a tenant, as another one, and as another owner, nothing is seen and nothing is changed, by the user of programs and by
/// the owner of the tables.
#[tokio::test(flavor = "multi_thread")]
async fn raw_sql_sees_and_changes_nothing_of_others() {
    nothing_of_others(&Scene::with_tables().await).await;
}

pub(crate) async fn nothing_of_others(scene: &Scene) {
    fill(scene, &scene.open().await).await;
    let before = rows(scene).await;
    let cases: [&[(&str, &str)]; 9] = [
        &[],
        &[("agent.owner", "*")],
        &[("agent.tenant", ""), ("agent.owner", "*")],
        &[("agent.tenant", "globex"), ("agent.owner", "*")],
        &[("agent.tenant", "acme"), ("agent.owner", "")],
        &[("agent.tenant", "acme"), ("agent.owner", "=")],
        &[("agent.tenant", "acme"), ("agent.owner", "alice")],
        &[("agent.tenant", "acme"), ("agent.owner", "=bob")],
        &[("agent.across", "on"), ("agent.owner", "*")],
    ];
    for user in [&scene.app(), OWNER] {
        for case in cases {
            let mut conn = connect_as(scene, user, case).await;
            for table in TABLES {
                let what = format!("{table} for {user} with {case:?}");
                let column = if table == "blob_chunks" { "crc" } else { "tenant" };
                for sql in [
                    format!("SELECT 1 FROM @.{table}"),
                    format!("SELECT 1 FROM @.{table} FOR UPDATE"),
                    format!("UPDATE @.{table} SET {column} = {column}"),
                    format!("DELETE FROM @.{table}"),
                ] {
                    assert_eq!(raw(&mut conn, scene, &sql).await, Ok(0), "{sql}: {what}");
                }
                let insert =
                    format!("INSERT INTO @.{table} OVERRIDING SYSTEM VALUE SELECT * FROM @.copy_of_{table}");
                for otherwise in ["", " ON CONFLICT DO NOTHING"] {
                    let done = raw(&mut conn, scene, &format!("{insert}{otherwise}")).await;
                    assert_eq!(done, Err("42501".to_owned()), "{insert}{otherwise}: {what}");
                }
                if user != OWNER {
                    let done = raw(&mut conn, scene, &format!("TRUNCATE @.{table}")).await;
                    assert_eq!(done, Err("42501".to_owned()), "{what}");
                }
            }
        }
    }
    assert_eq!(rows(scene).await, before);
    // All of it is seen with the right settings, so that the above says something.
    for owner in ["*", "=alice"] {
        let mut conn =
            connect_as(scene, &scene.app(), &[("agent.tenant", "acme"), ("agent.owner", owner)]).await;
        for table in TABLES {
            let seen = raw(&mut conn, scene, &format!("SELECT 1 FROM @.{table}")).await;
            assert!(seen.is_ok_and(|count| count > 0), "{table} for {owner}");
        }
    }
}

/// An owner sees its own rows, those without an owner in its workspaces, and the data that owners share; the tenant sees all.
#[tokio::test(flavor = "multi_thread")]
async fn owners_see_their_own_and_what_is_shared() {
    let scene = Scene::new();
    let store = scene.open().await;
    let tenant = Backend::tenant(&store, &tenant("acme"));
    let (alice, bob) = (tenant.for_owner(&owner("alice")), tenant.for_owner(&owner("bob")));
    let (of_alice, of_bob, of_nobody) =
        (workspace(&scene, &alice).await, workspace(&scene, &bob).await, workspace(&scene, &tenant).await);
    let own = session(&scene, &alice, of_nobody).await;
    let in_own = session(&scene, &tenant, of_alice).await;
    let shared = HiddenSession::area(WorkspaceId::DEFAULT, WorkspaceArea::Memory);
    let shared = shared.open(&alice.sessions).await.unwrap().id;
    let hidden = HiddenSession::area(of_bob, WorkspaceArea::Memory).open(&bob.sessions).await.unwrap().id;
    let of_tenant = session(&scene, &tenant, of_nobody).await;
    let others = session(&scene, &bob, of_bob).await;

    let app = scene.app();
    let seen = async |owner: &str, table: &str, column: &str| {
        let mut conn = connect_as(&scene, &app, &[("agent.tenant", "acme"), ("agent.owner", owner)]).await;
        let sql = format!("SELECT DISTINCT {column} FROM \"{}\".{table} ORDER BY 1", scene.schema);
        let rows = conn.fetch_all(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
        rows.iter().map(|row| row.get::<sqlx::types::Uuid, _>(0)).collect::<Vec<_>>()
    };
    let ids = |ids: &[SessionId]| {
        let mut ids: Vec<_> = ids.iter().map(|id| *id.as_uuid()).collect();
        ids.sort_unstable();
        ids
    };
    for table in ["sessions", "events"] {
        assert_eq!(seen("=alice", table, "session").await, ids(&[own, in_own, shared]), "{table}");
        assert_eq!(seen("=bob", table, "session").await, ids(&[others, hidden, shared]), "{table}");
        let all = ids(&[own, in_own, shared, hidden, of_tenant, others]);
        assert_eq!(seen("*", table, "session").await, all, "{table}");
    }
    let mut places = vec![*of_alice.as_uuid(), *of_nobody.as_uuid()];
    places.sort_unstable();
    assert_eq!(seen("=alice", "workspaces", "id").await, places);

    // They use a workspace without an owner, and neither delete it nor create one; nothing is written for another owner.
    let mut conn = connect_as(&scene, &app, &[("agent.tenant", "acme"), ("agent.owner", "=alice")]).await;
    let refused = Err("42501".to_owned());
    let id = of_nobody.as_uuid();
    let touch = format!("UPDATE @.workspaces SET last_accessed = 1 WHERE id = '{id}'");
    assert_eq!(raw(&mut conn, &scene, &touch).await, Ok(1));
    let delete = format!("DELETE FROM @.workspaces WHERE id = '{id}'");
    assert_eq!(raw(&mut conn, &scene, &delete).await, Ok(0));
    let insert = "INSERT INTO @.workspaces (tenant, id, owner, status, last_accessed) SELECT 'acme', gen_random_uuid(), ";
    assert_eq!(raw(&mut conn, &scene, &format!("{insert} '', 'active', 1")).await, refused);
    assert_eq!(raw(&mut conn, &scene, &format!("{insert} 'bob', 'active', 1")).await, refused);
    assert_eq!(raw(&mut conn, &scene, &format!("{insert} 'alice', 'active', 1")).await, Ok(1));
    for sql in ["UPDATE @.sessions SET owner = 'bob'", "UPDATE @.sessions SET tenant = 'globex'"] {
        assert_eq!(raw(&mut conn, &scene, sql).await, refused, "{sql}");
    }
    assert_eq!(raw(&mut conn, &scene, "UPDATE @.events SET owner = 'bob'").await, refused);
}

/// The handle of an owner is kept by the database, too, whatever it remembers.
#[tokio::test(flavor = "multi_thread")]
async fn the_database_refuses_what_a_handle_would_allow() {
    let scene = Scene::new();
    let store = scene.open().await;
    let alice = Backend::tenant(&store, &tenant("acme")).for_owner(&owner("alice"));
    let place = workspace(&scene, &alice).await;
    let id = session(&scene, &alice, place).await;
    let session = alice.sessions.load(id).await.unwrap();
    alice.workspaces.load(place).await.unwrap();
    for table in ["sessions", "events", "workspaces"] {
        scene.run(&format!("UPDATE @.{table} SET owner = 'bob'")).await;
    }
    // It has seen that both are alice's, and asks no more.
    let commit = Commit::seal(&scene.effects, id, session.head).with_events(message("hello"));
    assert_eq!(*alice.sessions.commit(commit.clone()).await.unwrap_err().kind(), ErrorKind::NotFound);
    let read = alice.sessions.read(id, ReadEvents::default()).await;
    assert_eq!(*read.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(*alice.workspaces.load_config(place).await.unwrap_err().kind(), ErrorKind::NotFound);
    let saved = alice.workspaces.save_config(place, Some("a = 1".to_owned()), Precondition::None).await;
    assert_eq!(*saved.unwrap_err().kind(), ErrorKind::NotFound);
    let own = SessionStore::of_owner(&store.for_tenant(&tenant("acme")), &owner("alice")).unwrap();
    let create = NewSession::new(id, WorkspaceId::DEFAULT);
    let mut create = Commit::create(&scene.effects, create);
    create.session = id;
    let created = own.commit(create).await.unwrap_err();
    assert_eq!(*created.kind(), ErrorKind::Denied);
    assert!(created.to_string().contains("row security"), "{created}");
    // The tenant has them all.
    let tenant = Backend::tenant(&store, &tenant("acme"));
    tenant.sessions.commit(commit).await.unwrap();
}

/// A blob is put before its session is created: it is nobody's until then. Owners who put the same one for the same session are not in
/// each other's way, and see nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn blobs_without_a_session_are_nobodys() {
    let scene = Scene::new();
    let store = scene.open().await.for_tenant(&tenant("acme"));
    let all = Backend::tenant(&store, &tenant("acme"));
    let [alice, bob] = ["alice", "bob"].map(|name| all.for_owner(&owner(name)));
    let id = scene.effects.new_session_id();
    let put = || PutBlob::of_bytes(id, "of all");
    let (name, bytes) = (put().blob.name, put().blob.bytes);
    for storage in [&bob, &alice, &all, &bob] {
        storage.sessions.blobs().put(put()).await.unwrap();
    }
    let nobody = "SELECT count(*) FROM @.blobs WHERE owner = '' AND state = 'whole' AND named IS NULL";
    assert_eq!(scene.number(nobody).await, 1);
    let look = Message::new("Look").with_part(Part::Image(Media::blob("image/png", name, bytes)));
    let create = Commit::create(&scene.effects, NewSession::new(id, WorkspaceId::DEFAULT));
    alice.sessions.commit(create.with_event(NewEvent::from(look))).await.unwrap();
    assert_eq!(scene.number("SELECT count(*) FROM @.blobs WHERE owner = 'alice' AND named = 2").await, 1);
    let read = || ReadBlob::new(id, name);
    drop(alice.sessions.blobs().read(read()).await.unwrap());
    // Through the handle, and through what is behind it.
    let behind = SessionStore::of_owner(&store, &owner("bob")).unwrap();
    for blobs in [bob.sessions.blobs(), behind.blobs()] {
        assert_eq!(*blobs.put(put()).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(*blobs.read(read()).await.unwrap_err().kind(), ErrorKind::NotFound);
    }
}

/// Calls of several tenants and owners on one connection see their own data only.
#[tokio::test(flavor = "multi_thread")]
async fn one_connection_serves_tenants_and_owners_in_turn() {
    let scene = Scene::with_tables().await;
    let store = scene.config().with_connections(1).open().await.unwrap();
    let mut all = Vec::new();
    for name in ["acme", "globex"] {
        let tenant = Backend::tenant(&store, &tenant(name));
        for user in ["alice", "bob"] {
            let storage = tenant.for_owner(&owner(user));
            let id = session(&scene, &storage, WorkspaceId::DEFAULT).await;
            let place = workspace(&scene, &storage).await;
            all.push((storage, id, place));
        }
    }
    for _ in 0..3 {
        for (storage, id, place) in &all {
            let head = storage.sessions.load(*id).await.unwrap().head;
            storage.sessions.append(*id, head, message("hello")).await.unwrap();
            let listed = storage.sessions.list(SessionQuery::new()).await.unwrap().items;
            assert_eq!(listed.iter().map(|item| item.id).collect::<Vec<_>>(), [*id]);
            let listed = storage.workspaces.list(WorkspaceQuery::new()).await.unwrap().items;
            assert_eq!(listed.iter().map(|item| item.id).collect::<Vec<_>>(), [*place]);
            assert!(storage.bindings.list(BindingQuery::new()).await.unwrap().items.is_empty());
            for (_, other, _) in all.iter().filter(|(_, other, _)| other != id) {
                assert!(storage.sessions.load(*other).await.unwrap_err().is_absent());
            }
        }
    }
    let found = store.tenants(None).await.unwrap().items;
    assert_eq!(found, [tenant("acme"), tenant("globex")]);
}

/// A superuser and a user with BYPASSRLS, whom no policy binds, are refused by name unless that is wanted.
#[tokio::test(flavor = "multi_thread")]
async fn users_whom_no_policy_binds_are_refused_by_name() {
    let scene = Scene::new();
    let store = scene.open().await;
    assert_eq!(store.capabilities().isolation, Isolation::Database);
    let bypasses = format!("{}_bypasses", scene.schema);
    scene.run(&format!("CREATE ROLE {bypasses} LOGIN BYPASSRLS; GRANT {} TO {bypasses}", scene.app())).await;
    for user in ["postgres", &bypasses] {
        let config = scene.config_at(&scene.address(user));
        let error = config.clone().open().await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Denied);
        assert!(error.to_string().contains(&format!("user {user} ")), "{error}");
        let store = config.with_option("isolation", "none").unwrap().open().await.unwrap();
        assert_eq!(store.capabilities().isolation, Isolation::None);
        scene.create(&store).await;
    }
    let error =
        Scene::new().config_at(&scene.address("postgres")).with_migrate(true).open().await.unwrap_err();
    assert!(error.to_string().contains("user postgres "), "{error}");
}

/// Tables without row security, or without it for their owner, are refused.
#[tokio::test(flavor = "multi_thread")]
async fn tables_without_row_security_are_refused() {
    let scene = Scene::with_tables().await;
    for off in ["NO FORCE", "DISABLE"] {
        scene.run(&format!("ALTER TABLE @.blob_chunks {off} ROW LEVEL SECURITY")).await;
        let error = scene.config().open().await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("row security"), "{error}");
        scene.run("ALTER TABLE @.blob_chunks FORCE ROW LEVEL SECURITY").await;
        if off == "NO FORCE" {
            scene.config().open().await.unwrap();
        }
    }
}

/// A user that may create tables and no roles is all roles at once.
#[tokio::test(flavor = "multi_thread")]
async fn one_user_without_roles_is_enough() {
    let scene = Scene::new();
    let alone = format!("{}_alone", scene.schema);
    scene.run(&format!("CREATE ROLE {alone} LOGIN; GRANT CREATE ON DATABASE postgres TO {alone}")).await;
    let store = scene.config_at(&scene.address(&alone)).with_migrate(true).open().await.unwrap();
    assert_eq!(store.capabilities().isolation, Isolation::Database);
    let session = fill(&scene, &store).await;
    let acme = Backend::tenant(&store, &tenant("acme"));
    assert_eq!(acme.sessions.load(session.id).await.unwrap().head, session.head);
    assert_eq!(store.tenants(None).await.unwrap().items, [tenant("acme")]);
    assert_eq!(store.busy_tenants(scene.effects.now(), None).await.unwrap().items, [tenant("acme")]);
    let mut conn = connect_as(&scene, &alone, &[]).await;
    for table in TABLES {
        assert_eq!(raw(&mut conn, &scene, &format!("SELECT 1 FROM @.{table}")).await, Ok(0), "{table}");
    }
    let roles = format!("SELECT count(*) FROM pg_roles WHERE rolname LIKE '{}\\_%'", scene.schema);
    assert_eq!(scene.number(&roles).await, 1);
}

/// Whoever migrates as a superuser gives the tables to a role without a login.
#[tokio::test(flavor = "multi_thread")]
async fn a_superuser_gives_the_tables_away() {
    let scene = Scene::new();
    let config = scene.config_at(&scene.address("postgres")).with_migrate(true);
    let error = config.clone().open().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("set `isolation=none` to create the tables"), "{error}");
    config.with_isolation(Isolation::None).open().await.unwrap().close().await.unwrap();
    let store = scene.config().open().await.unwrap();
    fill(&scene, &store).await;
    assert_eq!(store.tenants(None).await.unwrap().items, [tenant("acme")]);
    let of = |what: &str| {
        format!(
            "SELECT count(*) FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE n.nspname = '{}' AND c.relkind = 'r' AND c.relname NOT LIKE 'copy_of_%' AND {what}",
            scene.schema
        )
    };
    assert_eq!(scene.number(&of("r.rolsuper")).await, 0);
    assert_eq!(
        scene.number(&of(&format!("r.rolname = '{}_owner' AND NOT r.rolcanlogin", scene.schema))).await,
        11
    );
}

/// Whoever sees the events of a session and not its record gets neither, and an answer.
#[tokio::test(flavor = "multi_thread")]
async fn events_without_their_record_are_not_shown() {
    let scene = Scene::new();
    let store = scene.open().await;
    let alice = Backend::tenant(&store, &tenant("acme")).for_owner(&owner("alice"));
    let id = session(&scene, &alice, WorkspaceId::DEFAULT).await;
    scene.run("UPDATE @.sessions SET owner = 'bob'").await;
    let own = SessionStore::of_owner(&store.for_tenant(&tenant("acme")), &owner("alice")).unwrap();
    assert_eq!(*own.load(id).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(*own.read(id, ReadEvents::default()).await.unwrap_err().kind(), ErrorKind::NotFound);
}

/// What another user has created in a schema that everybody sees is not called in place of what the server has.
#[tokio::test(flavor = "multi_thread")]
async fn functions_of_other_users_are_not_called() {
    let scene = Scene::in_own_database().await;
    scene
        .run(
            "CREATE TABLE public.loot (what text); GRANT ALL ON public.loot TO PUBLIC; GRANT USAGE ON SCHEMA public TO PUBLIC; \
             CREATE FUNCTION public.cardinality(x bigint[]) RETURNS integer LANGUAGE plpgsql AS $$ BEGIN \
             INSERT INTO public.loot VALUES (current_user); RETURN pg_catalog.cardinality(x); END $$; \
             CREATE FUNCTION public.unnest(x text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN \
             INSERT INTO public.loot VALUES (current_user); RETURN QUERY SELECT pg_catalog.unnest(x); END $$",
        )
        .await;
    let pooler = scene.pooler(1);
    for config in [scene.config(), scene.config_behind(&pooler)] {
        let store = config.open().await.unwrap();
        let session = scene.create(&store).await;
        let commit = Commit::seal(&scene.effects, session.id, session.head).with_events(message("a"));
        store.commit(commit).await.unwrap();
        store.close().await.unwrap();
    }
    // Whoever creates the tables may have more rights.
    let schema = format!("{}b", scene.schema);
    let config = scene.config_of_owner().with_schema(&schema).unwrap();
    config.open().await.unwrap();
    assert_eq!(scene.number("SELECT count(*) FROM public.loot").await, 0);
}
