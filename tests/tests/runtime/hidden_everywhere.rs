//! Redacted content: readers, the model and the stores receive what was committed without the secret's value, under any
//! name.

use std::collections::BTreeMap;
use std::path::Path;

use agent_core::event::{Event, Media, Message, Part};
use agent_core::json::RawJson;
use agent_core::model::{Access, Patch};
use agent_core::store::BlobInfo;
use agent_core::{Result, Storage, WorkspaceId, async_trait};
use agent_runtime::secrets::{Secret, SecretName, Secrets};
use agent_runtime::{
    AgentBuilder, AgentRuntime, Config, Conversation, LlmProvider, Plugin, ScriptedProvider, ToolContext,
    ToolOutput, ToolSpec, Turn, Update,
};
use agent_tests::{Site, each_store};
use futures::{StreamExt, stream};

use crate::common::{calls, check_log, log};

const VALUE: &str = "hunter2hunter2";

/// Tool that answers with bytes that hold the value, under types that are no text.
#[derive(Debug)]
struct Leaking;

#[async_trait]
impl Plugin for Leaking {
    fn name(&self) -> &str {
        "leaking"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        vec![ToolSpec::new("look", "looks")]
    }

    async fn call_for_output(&self, _: &str, _: RawJson, _: ToolContext) -> Result<ToolOutput> {
        let medium = |media: &str, bytes: Vec<u8>| Media::inline(media, bytes);
        let text = format!("the password is {VALUE}{}", "!".repeat(2000));
        let picture = [b"\x89PNG\r\n\x1a\n\0\0", VALUE.as_bytes(), &[0; 2000]].concat();
        Ok(ToolOutput::new(RawJson::of(&"seen")?)
            .with_part(Part::Resource(medium("application/octet-stream", text.clone().into_bytes())))
            .with_part(Part::Image(medium("image/png", text.into_bytes())))
            .with_part(Part::Image(medium("image/png", picture)))
            .with_part(Part::Audio(medium("audio/wav", VALUE.into()))))
    }
}

async fn start(storage: &Storage, model: impl LlmProvider) -> (AgentRuntime, Conversation) {
    let name: SecretName = "door".parse().unwrap();
    let secrets = Secrets::new(BTreeMap::from([(name.clone(), Secret::new(VALUE).unwrap())]));
    let agent = AgentBuilder::new()
        .with_config(Config::new().with_holder(format!("worker {VALUE}")))
        .with_llm(model)
        .with_plugin(Leaking)
        .with_storage(storage.clone())
        .with_secrets(secrets.clone())
        .build()
        .unwrap();
    let chat = agent.conversation("key").await.unwrap();
    chat.update(Patch::new().mount(name.resource(), Access::Read)).await.unwrap();
    secrets.reveal(WorkspaceId::DEFAULT, &name).await.unwrap();
    (agent, chat)
}

/// Number of files below a folder, none of which holds the value.
fn assert_nowhere(folder: &Path) -> usize {
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap().map(std::result::Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            files += assert_nowhere(&entry.path());
        } else if let Ok(bytes) = std::fs::read(entry.path()) {
            let is_found = bytes.windows(VALUE.len()).any(|window| window == VALUE.as_bytes());
            assert!(!is_found, "{}", entry.path().display());
            files += 1;
        }
    }
    files
}

/// The signed items behind such a call go back: the next request has the call as it was committed.
async fn a_call_is_named_for_all_as_it_is_committed(site: Site) {
    let empty = RawJson::empty_object;
    let model = ScriptedProvider::new([
        Turn::new().signed_thinking("hm").signed_call(
            &format!("id-{VALUE}"),
            &format!("open_{VALUE}"),
            empty(),
        ),
        Turn::new().signed_thinking("ah").signed_call("b", "look", empty()),
        Turn::new().signed_thinking("oh").text("Done."),
        Turn::new().text("Bye."),
    ])
    .with_account("team-a");
    let storage = site.open().await;
    let (agent, chat) = start(&storage, model.clone()).await;
    let mut seen = Vec::new();
    let mut run = chat.prompt("Open it.").await.unwrap();
    while let Some(update) = run.next().await {
        let update = update.unwrap();
        assert!(!format!("{update:?}").contains(VALUE), "{update:?}");
        if let Update::ToolCalled(call) = update {
            seen.push(call);
        }
    }
    let (stored, _) = calls(&chat).await.swap_remove(0);
    assert_eq!((&seen[0].call, &seen[0].name), (&stored.call, &stored.name), "{}", site.name);
    drop((chat, agent));
    let (_agent, chat) = start(&storage, model.clone()).await;
    chat.prompt("And now?").await.unwrap().finish().await.unwrap();
    let requests = model.requests();
    assert_eq!(requests.len(), 4, "{}: none is refused", site.name);
    for pair in requests.windows(2) {
        assert!(pair[1].messages.starts_with(&pair[0].messages), "{}: {pair:#?}", site.name);
    }
    assert!(!format!("{requests:?}").contains(VALUE), "{}", site.name);
    check_log(&chat).await;
}
each_store!(a_call_is_named_for_all_as_it_is_committed and files);

async fn content_of_each_type_is_redacted(site: Site) {
    let call = Turn::new().call("a", "look", RawJson::empty_object());
    let model = ScriptedProvider::new([call, Turn::new().text("Seen."), Turn::new().text("Seen.")]);
    let storage = site.open().await;
    let (agent, chat) = start(&storage, model.clone()).await;
    chat.prompt("Look.").await.unwrap().finish().await.unwrap();
    // Of a person: inline, and put before in three ways.
    let text = || format!("{VALUE} {}", "x".repeat(5000)).into_bytes();
    let binary = || [&text()[..], &[0, 1, 2]].concat();
    let pieces = |bytes: Vec<u8>| {
        let pieces: Vec<_> = bytes.chunks(7).map(|piece| Ok(piece.to_vec().into())).collect();
        stream::iter(pieces).boxed()
    };
    let mut message = Message::new("Look");
    for bytes in [text(), binary()] {
        let media = "application/octet-stream";
        let info = BlobInfo::of(&bytes);
        for medium in [
            Media::inline(media, bytes.clone()),
            chat.put_media(media, bytes.clone()).await.unwrap(),
            chat.put_media_stream(media, pieces(bytes.clone())).await.unwrap(),
            chat.put_media_content(media, info, pieces(bytes.clone())).await.unwrap(),
        ] {
            message = message.with_part(Part::Resource(medium));
        }
    }
    chat.prompt(message).await.unwrap().finish().await.unwrap();
    let requests = model.requests();
    let mut given = 0;
    for message in &requests.last().unwrap().messages {
        let parts = match message {
            agent_runtime::context::ModelMessage::User(content) => content.parts.clone(),
            agent_runtime::context::ModelMessage::ToolResults(results) => results[0].content.clone(),
            _ => continue,
        };
        for media in parts.iter().filter_map(Part::media) {
            let agent_core::event::MediaSource::Inline(bytes) = &media.source else { panic!("{media:?}") };
            assert!(!bytes.windows(VALUE.len()).any(|window| window == VALUE.as_bytes()), "{media:?}");
            given += 1;
        }
    }
    assert_eq!(given, 4 + 8, "{}", site.name);
    let holders: Vec<_> = log(&chat).await.iter().map(Event::to_json).collect();
    assert!(!holders.concat().contains(VALUE), "{}", site.name);
    assert!(holders.concat().contains("worker (secret door)"), "{}", site.name);
    agent.close().await.unwrap();
    assert!(assert_nowhere(site.folder.path()) > 0 || site.name == "memory", "{}", site.name);
}
each_store!(content_of_each_type_is_redacted and files);
