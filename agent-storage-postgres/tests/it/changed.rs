//! Opening of a store that somebody has changed, or whose place others use.

use agent_core::ErrorKind;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Executor, Row};

use crate::Scene;
use crate::support::OWNER;

impl Scene {
    /// Refuses to open, for the program and for whoever creates the tables, with this text. Returns the error's text.
    async fn is_refused(&self, kind: &ErrorKind, text: &str) -> String {
        let mut said = String::new();
        for config in [self.config(), self.config_of_owner()] {
            let error = config.open().await.unwrap_err();
            said = error.to_string();
            assert_eq!(error.kind(), kind, "{said}");
            assert!(said.contains(text), "{text}: {said}");
        }
        said
    }

    /// Returns each policy with its role.
    async fn policies(&self) -> Vec<String> {
        let sql =
            format!("SELECT p::text FROM pg_policies p WHERE schemaname = '{}' ORDER BY 1", self.schema);
        let rows = self.connect().await.fetch_all(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }
}

/// A policy that was added, changed, or made anew in another way is refused by name, with the statement that sets it back.
#[tokio::test(flavor = "multi_thread")]
async fn policies_that_were_changed_or_added_are_refused_by_name() {
    // A name that the server quotes.
    let scene = Scene { schema: "select".to_owned(), ..Scene::new() };
    scene.config_of_owner().with_partitions(2).open().await.unwrap().close().await.unwrap();
    let before = scene.policies().await;
    for (change, named) in [
        ("CREATE POLICY all_of_it ON @.sessions USING (true)", "policy all_of_it of table sessions is none"),
        (
            "CREATE POLICY \"All of it\" ON @.blob_chunks FOR SELECT USING (true)",
            "policy All of it of table blob_chunks is none",
        ),
        ("CREATE POLICY part ON @.events_1 USING (true)", "policy part of table events_1 is none"),
        ("ALTER POLICY tenant ON @.events USING (true)", "policy tenant of table events was changed"),
        ("ALTER POLICY tenant ON @.labels WITH CHECK (true)", "policy tenant of table labels was changed"),
        ("ALTER POLICY owner ON @.due TO postgres", "policy owner of table due was changed"),
        (
            "ALTER POLICY owner_insert ON @.workspaces WITH CHECK (owner = owner)",
            "policy owner_insert of table workspaces was changed",
        ),
        ("ALTER POLICY across ON @.blobs TO PUBLIC", "policy across of table blobs was changed"),
        // One and the same condition, for other commands, and one that restricts no other.
        (
            "DROP POLICY owner ON @.bindings; CREATE POLICY owner ON @.bindings AS RESTRICTIVE FOR UPDATE USING \
             (CASE WHEN (SELECT current_setting('agent.owner', true)) = '*' THEN true ELSE (SELECT @.owner()) IS NOT NULL \
             AND @.shows_place(tenant, workspace, true) END)",
            "policy owner of table bindings was changed",
        ),
        (
            "DROP POLICY blob ON @.blob_chunks; CREATE POLICY blob ON @.blob_chunks AS RESTRICTIVE USING \
             (EXISTS (SELECT 1 FROM @.blobs b WHERE b.blob = blob_chunks.blob))",
            "policy blob of table blob_chunks was changed",
        ),
    ] {
        scene.run(change).await;
        let said = scene.is_refused(&ErrorKind::Unsupported, named).await;
        let (_, remedy) = said.split_once("it back: ").or_else(|| said.split_once("remove it: ")).unwrap();
        scene.run(remedy).await;
        assert_eq!(scene.policies().await, before, "{change}");
        scene.config().open().await.unwrap();
    }
    scene.run("ALTER TABLE @.events_0 NO FORCE ROW LEVEL SECURITY").await;
    let said = scene.is_refused(&ErrorKind::Unsupported, "table events_0 has row security").await;
    scene.run(said.split_once("set it back: ").unwrap().1).await;
    scene.config().open().await.unwrap();
}

/// Roles that are there already, with rights that no policy binds or that the store needs not, are refused at creation and later.
#[tokio::test(flavor = "multi_thread")]
async fn roles_with_too_many_rights_are_refused_by_name() {
    for (role, right, back) in [
        ("app", "SUPERUSER", "NOSUPERUSER"),
        ("app", "BYPASSRLS", "NOBYPASSRLS"),
        ("app", "CREATEROLE", "NOCREATEROLE"),
        ("worker", "LOGIN", "NOLOGIN"),
        ("worker", "BYPASSRLS", "NOBYPASSRLS"),
        ("owner", "BYPASSRLS", "NOBYPASSRLS"),
    ] {
        let scene = Scene::new();
        let role = format!("{}_{role}", scene.schema);
        scene.run(&format!("CREATE ROLE {role} {right}")).await;
        let named = format!("role {role} has rights that it must not have ({right})");
        let error = scene.config_of_owner().open().await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains(&named), "{error}");
        let tables = format!("SELECT count(*) FROM pg_namespace WHERE nspname = '{}'", scene.schema);
        assert_eq!(scene.number(&tables).await, 0, "nothing is created");
        let remedy = format!("ALTER ROLE {role} {back}");
        assert!(error.to_string().contains(&remedy), "{error}");
        scene.run(&remedy).await;
        // The tables are not the role's, and the policies of whoever may be `worker` are not its either.
        scene.migrate().await;
        scene.run(&format!("ALTER ROLE {role} {right}")).await;
        let error = scene.config_of_owner().open().await.unwrap_err();
        assert!(error.to_string().contains(&named), "{error}");
    }
    // What a host may want: a program's role without a login, and an owner with one, who creates roles.
    let scene = Scene::with_tables().await;
    let of = |role: &str| format!("{}_{role}", scene.schema);
    scene
        .run(&format!("ALTER ROLE {} NOLOGIN; CREATE ROLE {} LOGIN CREATEROLE", of("app"), of("owner")))
        .await;
    scene.config_of_owner().open().await.unwrap();
}

/// An object of somebody else's under a name of the store's is named, whether the tables are to be created or not.
#[tokio::test(flavor = "multi_thread")]
async fn objects_of_others_are_named() {
    for (object, named) in [
        ("TABLE @.sessions (id bigint)", "table sessions"),
        ("TABLE @.meta (key text, value text)", "table meta"),
        ("VIEW @.v_runs AS SELECT 1 AS n", "view v_runs"),
        ("FUNCTION @.commit() RETURNS integer LANGUAGE sql AS 'SELECT 1'", "function commit"),
    ] {
        let scene = Scene::new();
        scene
            .run(&format!(
                "CREATE SCHEMA {0} AUTHORIZATION {OWNER}; SET ROLE {OWNER}; CREATE {object}",
                scene.schema
            ))
            .await;
        for migrate in [false, true] {
            let error = scene.config_of_owner().with_migrate(migrate).open().await.unwrap_err();
            let (said, named) = (error.to_string(), format!("has a {named} that is not this library's"));
            assert_eq!(*error.kind(), ErrorKind::Unsupported, "{said}");
            assert!(said.contains(&named) && said.contains("schema=NAME"), "{said}");
        }
    }
    // One that is met only when the tables are created is in the cause.
    let scene = Scene::new();
    scene
        .run(&format!(
            "CREATE SCHEMA {0} AUTHORIZATION {OWNER}; CREATE TYPE @.events AS (n integer)",
            scene.schema
        ))
        .await;
    let error = scene.config_of_owner().open().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("schema=NAME"), "{error}");
}

/// A table `meta` without its row is damage, and no reason to create tables.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_table_of_formats_is_damage() {
    let scene = Scene::with_tables().await;
    let mut conn = PgConnection::connect(&scene.address("postgres")).await.unwrap();
    conn.execute(sqlx::raw_sql(AssertSqlSafe(format!("DELETE FROM {}.meta", scene.schema)))).await.unwrap();
    let said = scene
        .is_refused(&ErrorKind::Corrupt, ": the row of table meta of the store is missing; restore it")
        .await;
    assert!(!said.contains("migrate"), "{said}");
}
