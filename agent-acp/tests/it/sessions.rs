//! Sessions: their working folders, and how they are listed, forked, closed and deleted.

use std::sync::Arc;

use agent_acp::AcpAgent;
use agent_client_protocol::v1::schema;
use agent_core::WorkspaceId;
use agent_core::state::SessionState;
use agent_runtime::{ScriptedProvider, Turn};
use serde_json::json;

use crate::common::{Site, client, created, each_store, id, load, prompt, shown};

each_store!(sessions_are_listed_forked_closed_and_deleted);

fn answers() -> ScriptedProvider {
    ScriptedProvider::new([Turn::new().text("One."), Turn::new().text("Two.")])
}

fn meta(device: &str) -> schema::Meta {
    json!({ "agent": { "device": device } }).as_object().unwrap().clone()
}

async fn sessions_are_listed_forked_closed_and_deleted(site: Site) {
    let agent = site.agent(answers(), &Arc::default()).await;
    client(AcpAgent::new(agent.clone()), None, async |connection, seen| {
        let list = async |request: schema::ListSessionsRequest| {
            connection.send_request(request).block_task().await.unwrap().sessions
        };
        let session = created(&connection).await;
        connection.send_request(prompt(&session, "First")).block_task().await.unwrap();
        agent.conversation_by_id(id(&session)).await.unwrap().set_title("Numbers").await.unwrap();
        let elsewhere = schema::NewSessionRequest::new("/elsewhere");
        let elsewhere = connection.send_request(elsewhere).block_task().await.unwrap().session_id;

        let here = list(schema::ListSessionsRequest::new().cwd(std::path::PathBuf::from("/work"))).await;
        assert_eq!(here.len(), 1);
        let listed = (&here[0].session_id, here[0].title.as_deref(), here[0].cwd.to_str());
        assert_eq!(listed, (&session, Some("Numbers"), Some("/work")));
        assert!(here[0].updated_at.as_ref().unwrap().ends_with('Z'));
        assert_eq!(list(schema::ListSessionsRequest::new()).await.len(), 2);

        // A fork has the history, and goes on alone.
        let fork = schema::ForkSessionRequest::new(session.clone(), "/work");
        let fork = connection.send_request(fork).block_task().await.unwrap().session_id;
        seen.take();
        connection.send_request(load(&fork)).block_task().await.unwrap();
        let of_fork = shown(&seen.take());
        connection.send_request(load(&session)).block_task().await.unwrap();
        assert_eq!(of_fork, shown(&seen.take()), "a fork has the messages with their ids");
        connection.send_request(prompt(&fork, "Second")).block_task().await.unwrap();
        assert_eq!(agent.conversation_by_id(id(&session)).await.unwrap().record().counts.messages(), 2);

        let close = schema::CloseSessionRequest::new(fork.clone());
        connection.send_request(close.clone()).block_task().await.unwrap();
        connection.send_request(close).block_task().await.unwrap();
        let error = connection.send_request(prompt(&fork, "Third")).block_task().await.unwrap_err();
        assert!(error.message.contains(&*fork.0) && error.message.contains("load"), "{error:?}");

        // Deleted sessions are gone, and so are those that never were.
        let delete = schema::DeleteSessionRequest::new(elsewhere.clone());
        connection.send_request(delete.clone()).block_task().await.unwrap();
        connection.send_request(delete).block_task().await.unwrap();
        assert_eq!(list(schema::ListSessionsRequest::new()).await.len(), 2);
        let error = connection.send_request(load(&elsewhere)).block_task().await.unwrap_err();
        assert_eq!(i32::from(error.code), -32002, "{error:?}");

        // The directory follows.
        let moved = schema::LoadSessionRequest::new(session.clone(), "/moved");
        connection.send_request(moved).block_task().await.unwrap();
        let here = list(schema::ListSessionsRequest::new().cwd(std::path::PathBuf::from("/moved"))).await;
        assert_eq!(here[0].session_id, session);
    })
    .await;
    site.end(agent).await;
}

#[tokio::test]
async fn long_lists_have_pages() {
    let agent = Site::new("memory").agent(answers(), &Arc::default()).await;
    client(AcpAgent::new(agent), None, async |connection, _| {
        let mut ids = Vec::new();
        for _ in 0..120 {
            ids.push(created(&connection).await.0.to_string());
        }
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let request = schema::ListSessionsRequest::new().cursor(cursor);
            let page = connection.send_request(request).block_task().await.unwrap();
            assert!(page.sessions.len() <= 50);
            found.extend(page.sessions.into_iter().map(|session| session.session_id.0.to_string()));
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        found.sort();
        ids.sort();
        assert_eq!(found, ids);
        let wrong = schema::ListSessionsRequest::new().cursor("nowhere".to_owned());
        let error = connection.send_request(wrong).block_task().await.unwrap_err();
        assert!(error.message.contains("nowhere") && i32::from(error.code) == -32602, "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn a_device_has_a_workspace() {
    let agent = Site::new("memory").agent(answers(), &Arc::default()).await;
    let workspace = async |session: &schema::SessionId| {
        agent.conversation_by_id(id(session)).await.unwrap().record().workspace
    };
    let acp = AcpAgent::new(agent.clone());
    client(acp.clone(), None, async |connection, _| {
        let session = created(&connection).await;
        assert_eq!(workspace(&session).await, WorkspaceId::DEFAULT, "no device is named");
        let new = schema::NewSessionRequest::new("/work").meta(meta("phone"));
        let response = connection.send_request(new.clone()).block_task().await.unwrap();
        let of_phone = workspace(&response.session_id).await;
        assert_eq!(response.meta.unwrap()["agent"]["workspace"], of_phone.to_string());
        assert_ne!(of_phone, WorkspaceId::DEFAULT);
        let bound = agent.workspaces().resolve(&"phone".parse().unwrap()).await.unwrap().workspace.id;
        assert_eq!(bound, of_phone);
        let second = connection.send_request(new).block_task().await.unwrap().session_id;
        assert_eq!(workspace(&second).await, of_phone);

        let list = schema::ListSessionsRequest::new();
        let listed = connection.send_request(list.clone().meta(meta("phone"))).block_task().await.unwrap();
        assert_eq!(listed.sessions.len(), 2);
        let listed = connection.send_request(list.meta(meta("tablet"))).block_task().await.unwrap();
        assert!(listed.sessions.is_empty(), "a list binds nothing");

        let wrong = json!({ "agent": { "device": 7 } }).as_object().unwrap().clone();
        let new = schema::NewSessionRequest::new("/work").meta(wrong);
        let error = connection.send_request(new).block_task().await.unwrap_err();
        assert!(error.message.contains("_meta.agent.device"), "{error:?}");
    })
    .await;
    client(acp.clone().with_device("phone".parse().unwrap()), None, async |connection, _| {
        let listed = connection.send_request(schema::ListSessionsRequest::new()).block_task().await.unwrap();
        assert_eq!(listed.sessions.len(), 2);
    })
    .await;
    client(acp.with_workspace_per_directory(), None, async |connection, _| {
        let (one, two) = (created(&connection).await, created(&connection).await);
        let other = schema::NewSessionRequest::new("/other");
        let other = connection.send_request(other).block_task().await.unwrap().session_id;
        assert_eq!(workspace(&one).await, workspace(&two).await);
        assert_ne!(workspace(&one).await, workspace(&other).await);
    })
    .await;
}

/// What a client may use is what its list shows: every method answers any other session as one that does not exist.
#[tokio::test]
async fn what_the_list_hides_is_not_found() {
    let agent = Site::new("memory").agent(answers(), &Arc::default()).await;
    let phone = AcpAgent::new(agent.clone()).with_device("phone".parse().unwrap());
    let (session, archived) = client(phone.clone(), None, async |connection, _| {
        let (session, archived) = (created(&connection).await, created(&connection).await);
        agent.conversation_by_id(id(&archived)).await.unwrap().archive().await.unwrap();
        (session, archived)
    })
    .await;
    let absent = schema::SessionId::new(agent.effects().new_session_id().to_string());
    let hidden = async |acp: AcpAgent, session: schema::SessionId| {
        let outcome =
            |error: agent_client_protocol::Error| (i32::from(error.code), error.message, error.data);
        client(acp, None, async |connection, _| {
            let list =
                connection.send_request(schema::ListSessionsRequest::new()).block_task().await.unwrap();
            assert!(list.sessions.iter().all(|listed| listed.session_id != session));
            let resume = schema::ResumeSessionRequest::new(session.clone(), "/work");
            let fork = schema::ForkSessionRequest::new(session.clone(), "/work");
            let close = schema::CloseSessionRequest::new(session.clone());
            let answers = [
                outcome(connection.send_request(load(&session)).block_task().await.unwrap_err()),
                outcome(connection.send_request(resume).block_task().await.unwrap_err()),
                outcome(connection.send_request(fork).block_task().await.unwrap_err()),
                outcome(connection.send_request(close).block_task().await.unwrap_err()),
            ];
            let prompted = connection.send_request(prompt(&session, "Hello")).block_task().await;
            assert_eq!(i32::from(prompted.unwrap_err().code), -32002);
            // As for a session that does not exist, it is a success; nothing is deleted.
            let delete = schema::DeleteSessionRequest::new(session.clone());
            connection.send_request(delete).block_task().await.unwrap();
            answers.map(|(code, text, data)| {
                let of = session.to_string();
                (code, text.replace(&of, "ID"), data.unwrap().to_string().replace(&of, "ID"))
            })
        })
        .await
    };
    let tablet = || AcpAgent::new(agent.clone()).with_device("tablet".parse().unwrap());
    let expected = hidden(tablet(), absent).await;
    assert!(expected.iter().all(|(code, ..)| *code == -32002), "{expected:?}");
    assert_eq!(hidden(tablet(), session.clone()).await, expected);
    assert_eq!(hidden(AcpAgent::new(agent.clone()), session.clone()).await, expected);
    assert_eq!(hidden(phone.clone(), archived.clone()).await, expected);
    for kept in [&session, &archived] {
        assert!(
            agent.conversation_by_id(id(kept)).await.unwrap().record().status.state != SessionState::Deleted
        );
    }

    // A device that the request names is that of its list, too; and what a client has open it may use.
    client(tablet(), None, async |connection, _| {
        let list = schema::ListSessionsRequest::new().meta(meta("phone"));
        let listed = connection.send_request(list).block_task().await.unwrap().sessions;
        assert_eq!(listed[0].session_id, session);
        let resume = schema::ResumeSessionRequest::new(session.clone(), "/work").meta(meta("phone"));
        connection.send_request(resume).block_task().await.unwrap();
        connection.send_request(prompt(&session, "Hello")).block_task().await.unwrap();
        connection.send_request(load(&session)).block_task().await.unwrap();
        let delete = schema::DeleteSessionRequest::new(session.clone());
        connection.send_request(delete).block_task().await.unwrap();
        assert!(agent.conversation_by_id(id(&session)).await.is_err(), "it is deleted");
    })
    .await;
    // With a workspace for each directory, lists show the sessions of all.
    client(tablet().with_workspace_per_directory(), None, async |connection, _| {
        let session = client(phone, None, async |connection, _| created(&connection).await).await;
        connection.send_request(load(&session)).block_task().await.unwrap();
    })
    .await;
}
