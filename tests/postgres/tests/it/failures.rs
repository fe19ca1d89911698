//! Failures between the program and the server: each error names the store and what to do, and none has a password.

use std::net::TcpListener;
use std::process::Command;

use crate::common::Chat;
use crate::{Database, Ran, SERVER, chat};

const PASSWORD: &str = "xyzzy-plugh-4711";

/// Runs a command on an address, and checks that its error says this and no password.
#[track_caller]
fn refused(address: &str, args: &[&str], code: i32, texts: &[&str]) {
    for json in [&[][..], &["--json"]] {
        let ran = chat(&[&["--store", address], args, json].concat(), "");
        let whole = format!("{}{}", ran.out, ran.err);
        assert_eq!(ran.code, code, "{address}: {ran:?}");
        assert!(!whole.contains(PASSWORD), "{address}: {whole}");
        for text in texts {
            assert!(whole.contains(text), "{address}: {text} is not in {whole}");
        }
    }
}

/// Addresses that are wrong are refused before a server is asked.
#[test]
fn wrong_addresses_are_quoted_without_passwords() {
    let host = "127.0.0.1:1/agents";
    let (list, at) = (["session", "list"], format!("postgres://alice:{PASSWORD}@{host}"));
    refused(&format!("{at}?optoin=1"), &list, 2, &["unknown option \"optoin\"", "schema=NAME"]);
    refused(&format!("{at}?schema=No-Name"), &list, 2, &["is no name of a schema"]);
    refused(&format!("{at}?password={PASSWORD}&connections=many"), &list, 2, &["connections=NUMBER"]);
    refused(&at.replace(":1/", ":1x/"), &list, 2, &["option port", "1 to 65535"]);
    refused(&format!("{at}?sslmode=bogus"), &list, 2, &["option sslmode", "verify-full"]);
    refused(&format!("alice:{PASSWORD}@{host}"), &list, 2, &["unknown kind of store"]);
    refused(
        &at.replace("postgres:", "postgers:"),
        &list,
        2,
        &["unknown kind of store", "postgres://USER@HOST/DATABASE"],
    );
    // In the wrong place.
    for args in
        [&[at.as_str()][..], &["session", "show", &at], &["--store", "memory", &at], &["copy", &at, "tape:3"]]
    {
        let ran = chat(args, "");
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(!ran.err.contains(PASSWORD), "{ran:?}");
    }
}

#[test]
fn server_that_is_down_is_named() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = format!("postgres://alice:{PASSWORD}@{gone}/agents?schema=notes");
    let place = format!("schema notes of database agents on {gone}");
    let texts = [place.as_str(), "no server listens there; check host and port, and that the server runs"];
    for args in [&["session", "list"][..], &["verify"], &["upgrade"], &["tenant", "list"]] {
        refused(&address, args, 1, &texts);
    }
    refused(&address, &["backup", "x.db"], 1, &[&format!("'postgres://{gone}/agents'")]);
    let ran = chat(&["--store", &address], "hello\n");
    assert!(ran.code == 1 && ran.err.contains(texts[1]) && !ran.err.contains(PASSWORD), "{ran:?}");
}

/// A server that accepts connections and says nothing is given up after the time for connecting.
#[test]
fn silent_server_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let store = format!("postgres://alice:{PASSWORD}@{address}/agents?connect_timeout_ms=300");
    refused(
        &store,
        &["session", "list"],
        1,
        &["the server did not answer in time; check host, port and network"],
    );
    // Before that, a person learns of it.
    let mut command = Command::new(env!("CARGO_BIN_EXE_chat-with-postgres"));
    command
        .args(["--store", &format!("postgres://alice:{PASSWORD}@{address}/agents?connect_timeout_ms=60000")]);
    let chat = Chat::spawn(command);
    chat.err.wait_for(&format!(
        "postgres://{address}/agents?schema=agent has not answered for 2 s; still trying. Check its address"
    ));
    assert!(!chat.err.text().contains(PASSWORD), "{}", chat.err.text());
}

/// A wrong user, a missing database, missing rights: each is another error.
#[tokio::test]
async fn refusals_of_the_server_say_what_to_do() {
    let database = Database::new().await;
    let list = ["session", "list"];
    let absent = database.address().replace(&database.name, "no_such_database");
    refused(
        &absent,
        &list,
        3,
        &["database no_such_database on", "the database does not exist; create it, or name another one"],
    );
    refused(&absent, &["upgrade"], 3, &["the database does not exist"]);
    let login = format!("nobody:{PASSWORD}");
    refused(
        &database.address_of(&login),
        &list,
        1,
        &["the server refused the login; check user and password"],
    );
    let stranger = format!("stranger_{}", database.name);
    crate::sql(SERVER.address(), &format!("CREATE ROLE {stranger} LOGIN PASSWORD '{PASSWORD}'")).await;
    let address = database.address_of(&format!("{stranger}:{PASSWORD}"));
    refused(
        &address,
        &list,
        1,
        &["the user lacks the right that the cause names", "permission denied for schema agent"],
    );
    let other = format!("{address}?schema=other");
    refused(&other, &["upgrade"], 1, &["cannot create the tables", "permission denied for database"]);
}

/// A server that takes no writes is named when something is to be written; reading goes on.
#[tokio::test]
async fn read_only_server_is_named() {
    let database = Database::new().await;
    database.say("hello\n");
    let read_only = format!("ALTER DATABASE {} SET default_transaction_read_only = on", database.name);
    crate::sql(SERVER.address(), &read_only).await;
    database.ok(&["session", "list"]);
    let ran = database.say("more\n");
    let place = format!("schema agent of database {} on 127.0.0.1", database.name);
    assert!(ran.code == 1 && ran.err.contains(&place), "{ran:?}");
    assert!(
        ran.err.contains(
            "the server is no standby, but the user, the database or the server is set to read only"
        ),
        "{ran:?}"
    );
}

/// A table that somebody removed is named by every command; none makes it again.
#[tokio::test]
async fn missing_table_is_named() {
    let database = Database::new().await;
    database.sql("DROP TABLE agent.labels CASCADE").await;
    for args in [&["verify"][..], &["upgrade"], &["session", "list"]] {
        refused(
            &database.address(),
            args,
            5,
            &["table labels of the store is missing; restore it from a backup"],
        );
    }
}

/// A store of a newer version is refused by its number, and left as it is.
#[tokio::test]
async fn newer_tables_are_refused_by_their_number() {
    let database = Database::new().await;
    database.sql("UPDATE agent.meta SET format = 99").await;
    let address = database.address();
    refused(&address, &["session", "list"], 1, &["has tables of format 99", "use a newer chat"]);
    refused(&address, &["upgrade"], 1, &["has tables of format 99", "Nothing was changed"]);
}

/// The server ends while an answer streams, and stays down: the message is stored, the failure is named, and a chat on the
/// server that runs again finds the message and answers the next one.
#[tokio::test(flavor = "multi_thread")]
async fn server_that_is_killed_during_an_answer_loses_no_message() {
    let server = crate::support::Server::start();
    // The servers of the tests do not wait for the disk otherwise.
    crate::sql(server.address(), "ALTER DATABASE postgres SET synchronous_commit = on").await;
    let address = crate::support::address_of(server.address(), crate::support::OWNER);
    let store = format!("{address}?statement_timeout_ms=2000&connect_timeout_ms=1000");
    assert_eq!(chat(&["upgrade", "--store", &store], "").code, 0);
    let start = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chat-with-postgres"));
        command.args(["--store", &store, "--device", "laptop", "--lease-ttl-ms", "1000"]).args(options);
        Chat::spawn(command)
    };
    let mut one = start(&["--echo-delay-ms", "100"]);
    one.send(&"word ".repeat(100));
    one.out.wait_for("word word word");
    server.kill();
    one.err.wait_for("cannot commit: ");
    one.send("while it is down");
    one.err.wait_for_times("no server listens there; check host and port, and that the server runs", 2);
    server.start_again();
    let mut two = start(&[]);
    two.send("after");
    two.out.wait_for("after\n");
    two.send("/history");
    two.out.wait_for("laptop: word word");
    assert_eq!(two.finish(), 0, "{}", two.err.text());
    assert!(!two.out.text().contains("while it is down"), "what was refused is not stored");
    let shown = Ran { code: one.finish(), out: one.out.text(), err: one.err.text() };
    assert_eq!(shown.code, 1, "{shown:?}");
}
