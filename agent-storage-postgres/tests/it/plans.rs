//! Plans of the lists under row security, on 100,000 sessions of three tenants: each walks an index in its order.

use std::sync::Arc;

use agent_core::state::SessionState;
use agent_core::store::{BindingQuery, BlobQuery, SessionQuery, WorkspaceQuery};
use agent_core::{Backend, OwnerId, SessionId, SessionStore, Storage, TenantId, Timestamp, WorkspaceId};
use agent_storage_postgres::PostgresStore;
use sqlx::types::Uuid;
use sqlx::{AssertSqlSafe, Executor, Row};

use crate::{SERVER, Scene};

const SESSIONS: u64 = 100_000;
const TENANTS: [&str; 3] = ["acme", "globex", "initech"];

/// Returns the checksum of the parts of a row, as the format says.
fn checksum(parts: &[&str]) -> i32 {
    let sum = parts.iter().fold(0, |sum, part| {
        let sum = crc32c::crc32c_append(sum, &(part.len() as u64).to_le_bytes());
        crc32c::crc32c_append(sum, part.as_bytes())
    });
    sum.cast_signed()
}

/// Fills the tables with copies of the summary of one session; returns a session of the first tenant.
async fn fill(scene: &Scene, store: &PostgresStore) -> SessionId {
    let first = scene.create(store).await.id;
    let mut conn = scene.connect().await;
    let summary = format!("SELECT summary FROM {}.sessions", scene.schema);
    let summary: String = conn.fetch_one(sqlx::raw_sql(AssertSqlSafe(summary))).await.unwrap().get(0);
    let insert = format!(
        "INSERT INTO {}.sessions SELECT r.tenant, r.session, CASE WHEN n % 2 = 0 THEN '' ELSE 'user' || n % 500 END, \
         ('00000000-0000-4000-8000-' || lpad(to_hex(n % 300), 12, '0'))::uuid, \
         CASE n % 20 WHEN 0 THEN 'archived' WHEN 1 THEN 'ended' ELSE 'live' END, CASE WHEN n % 100 = 5 THEN 'failed' END, \
         CASE n % 20 WHEN 0 THEN 'archived' WHEN 1 THEN 'deleted' WHEN 5 THEN 'failed' WHEN 7 THEN 'queued' ELSE 'idle' END, '', \
         CASE WHEN n % 7 = 0 THEN 'user:anna' ELSE 'system' END, CASE WHEN n % 50 = 0 THEN $5 END, 1, 0, NULL, n, NULL, n, \
         n * 1000000, n * 1000000 / 60000000 * 60000000, NULL, 0, r.crc, '', r.summary, false \
         FROM unnest($1::text[], $2::uuid[], $3::int[], $4::text[]) WITH ORDINALITY AS r (tenant, session, crc, summary, n)",
        scene.schema
    );
    let (mut tenants, mut ids, mut crcs, mut summaries) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for n in 0..SESSIONS {
        let tenant = TENANTS[usize::try_from(n).unwrap() % TENANTS.len()];
        let id = scene.effects.new_session_id();
        let text = summary.replace(&first.to_string(), &id.to_string());
        crcs.push(checksum(&[tenant, &id.to_string(), &text]));
        tenants.push(tenant);
        ids.push(*id.as_uuid());
        summaries.push(text);
    }
    let one = ids[0];
    let insert =
        sqlx::query(AssertSqlSafe(insert)).bind(tenants).bind(ids).bind(crcs).bind(summaries).bind(one);
    conn.execute(insert).await.unwrap();
    scene
        .run(
            "INSERT INTO @.labels SELECT tenant, 'colour', 'c' || head_of % 50, session, owner FROM \
             (SELECT *, version AS head_of FROM @.sessions) s; \
             INSERT INTO @.due SELECT tenant, session, owner, CASE WHEN version % 2 = 1 THEN version END, state FROM @.sessions \
             WHERE version % 20 = 7; \
             INSERT INTO @.workspaces (tenant, id, owner, status, last_accessed) SELECT t, \
             ('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, CASE WHEN n % 2 = 0 THEN '' ELSE 'user' || n % 500 END, \
             'active', n FROM generate_series(1, 3000) n, unnest(ARRAY['acme', 'globex', 'initech']) t; \
             INSERT INTO @.bindings SELECT tenant, 'd' || id, id, 0, NULL FROM @.workspaces; \
             INSERT INTO @.blobs (tenant, session, owner, state, name, bytes, named, at, crc) \
             SELECT tenant, session, owner, 'whole', 'name', 1, CASE WHEN version % 50 > 0 THEN 1 END, 1, 0 FROM @.sessions WHERE version % 10 = 0; \
             ANALYZE",
        )
        .await;
    SessionId::from_uuid(one)
}

/// Plans in the server's log of the statements of the only user whose plans are logged.
fn plans() -> Vec<String> {
    let log = SERVER.log();
    let mut plans = Vec::<String>::new();
    let mut is_plan = false;
    for line in log.lines() {
        if !line.starts_with('\t') {
            is_plan = line.contains(" ms  plan:");
            if is_plan {
                plans.push(String::new());
            }
        } else if is_plan && let Some(plan) = plans.last_mut() {
            plan.push_str(line);
            plan.push('\n');
        }
    }
    plans
}

async fn seven_times<T>(list: impl AsyncFn() -> agent_core::Result<T>) {
    // After five, the server may use a plan for all values.
    for _ in 0..7 {
        list().await.unwrap();
    }
}

fn queries(one: SessionId) -> Vec<SessionQuery> {
    let place = WorkspaceId::from_uuid(Uuid::from_u128(0x0000_0000_0000_4000_8000_0000_0000_0007));
    let owner: OwnerId = "user7".parse().unwrap();
    let new = SessionQuery::new;
    vec![
        new(),
        new().with_hidden(),
        new().with_states([SessionState::Archived]),
        new().with_states([SessionState::Failed]),
        new().with_states([SessionState::Failed, SessionState::Suspended]),
        new().with_states([SessionState::Idle]),
        new().with_workspace(place),
        new().with_workspace(place).with_hidden(),
        new().with_owner(owner.clone()),
        new().with_owner(owner.clone()).with_hidden(),
        new().with_owner(owner).with_workspace(place),
        new().with_creator("user:anna".parse().unwrap()),
        new().with_due(Timestamp::from_micros(1 << 60)),
        new().with_inactive_since(Timestamp::from_micros(1 << 40)),
        new().with_label("colour", "c7"),
        new().with_parent(one),
        new().with_states([SessionState::Queued]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_walk_indexes_under_row_security() {
    let scene = Scene::in_own_database().await;
    let store = scene.config().open().await.unwrap();
    let one = fill(&scene, &store).await;
    tenants_are_found_along_indexes(&scene, &store).await;
    let app = scene.app();
    scene
        .run(&format!(
            "ALTER ROLE {app} SET session_preload_libraries = 'auto_explain'; ALTER ROLE {app} SET auto_explain.log_min_duration = 0"
        ))
        .await;
    let store = scene.config().with_connections(1).open().await.unwrap();
    let acme: TenantId = TENANTS[0].parse().unwrap();
    let tenant: Arc<dyn SessionStore> = Arc::new(store.for_tenant(&acme));
    let user: OwnerId = "user7".parse().unwrap();
    let own = tenant.of_owner(&user).unwrap();
    for query in queries(one) {
        // The handle of an owner asks for its owner's.
        for (sessions, query) in [(&tenant, query.clone()), (&own, query.with_owner(user.clone()))] {
            let next = sessions.list(query.clone().with_limit(5)).await.unwrap().next;
            seven_times(async || sessions.list(query.clone().with_cursor(next.clone())).await).await;
        }
    }
    let (sessions, storage) = (store.for_tenant(&acme), Storage::from(store.for_tenant(&acme)));
    seven_times(async || sessions.blobs().list(BlobQuery::new(one)).await).await;
    seven_times(async || storage.workspaces.list(WorkspaceQuery::new()).await).await;
    seven_times(async || storage.bindings.list(BindingQuery::new()).await).await;
    store.close().await.unwrap();

    let plans: Vec<_> = plans()
        .into_iter()
        .filter(|plan| ![".meta m", "pg_language"].iter().any(|of| plan.contains(of)))
        .collect();
    assert!(plans.len() > 300, "{} plans are logged", plans.len());
    for plan in plans {
        assert!(!plan.contains("Seq Scan"), "{plan}");
        assert!(
            plan.contains("One-Time Filter") || !plan.contains(".sessions"),
            "the tenant is compared for each row: {plan}"
        );
        // What is found by a label or a state of waiting is put in order.
        if plan.contains("labels x") || plan.contains("due w") {
            continue;
        }
        let sorts = plan.split("Sort  (").skip(1).map(|sort| sort.split_once("rows=").unwrap().1);
        let most = sorts.map(|sort| sort.split(' ').next().unwrap().parse::<u32>().unwrap()).max();
        assert!(most.unwrap_or(0) <= 50, "more rows are sorted than a page has: {plan}");
    }
}

/// The functions over all tenants read no table from its beginning to its end.
async fn tenants_are_found_along_indexes(scene: &Scene, store: &PostgresStore) {
    let before = format!(
        "SELECT sum(seq_scan)::bigint FROM pg_stat_user_tables WHERE schemaname = '{}' \
         AND relname IN ('sessions', 'workspaces', 'bindings', 'blobs', 'due')",
        scene.schema
    );
    let scans = scene.number(&before).await;
    for _ in 0..7 {
        assert_eq!(store.tenants(None).await.unwrap().items.len(), 4);
        assert_eq!(store.busy_tenants(Timestamp::from_micros(1 << 60), None).await.unwrap().items.len(), 3);
    }
    // The statistics of a connection are sent when it ends.
    store.close().await.unwrap();
    for _ in 0..20 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        assert_eq!(scene.number(&before).await, scans);
    }
}
