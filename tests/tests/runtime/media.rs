//! Media that are blobs: what a model is given of them.

use agent_core::event::{Media, MediaSource, Message, NewEvent, Part};
use agent_core::store::{BlobInfo, PutBlob, ReadBlob, SweepBlobs};
use agent_core::{ErrorKind, Seq, SessionStoreExt};
use agent_runtime::context::{Messages, ModelMessage};
use agent_runtime::{ScriptedProvider, Turn};
use agent_tests::{Site, each_store};

use crate::common::agent;

fn pictures(messages: &Messages) -> Vec<Part> {
    messages
        .iter()
        .filter_map(|message| match message {
            ModelMessage::User(content) => content.parts.last().cloned(),
            _ => None,
        })
        .collect()
}

/// A model is given the bytes of a blob, in the session, in a fork and after a restart; a text takes the place of one that
/// is too large, or gone.
async fn models_are_given_the_bytes_of_blobs(site: Site) {
    let storage = site.open().await;
    let turns = ["one", "two", "three", "four"].map(|text| Turn::new().text(text));
    let provider = ScriptedProvider::new(turns);
    let runtime = agent(&storage, provider.clone());
    let chat = runtime.conversation("pictures").await.unwrap();
    let bytes = [&b"\x89PNG\r\n\x1a\n"[..], &[7; 299_992]].concat();
    let cat = chat.put_media("image/png", bytes.clone()).await.unwrap().with_name("cat.png");
    assert!(matches!(cat.source, MediaSource::Blob { bytes: 300_000, .. }));
    assert_eq!(chat.media_bytes(&cat, 1 << 20).await.unwrap(), bytes);
    let small = chat.put_media("image/png", "small").await.unwrap();
    assert!(matches!(small.source, MediaSource::Inline(_)));
    let look = Message::new("What is this?").with_part(Part::Image(cat.clone()));
    chat.prompt(look).await.unwrap().finish().await.unwrap();
    let given = |n: usize| pictures(&provider.requests()[n].messages);
    let with_bytes = Part::Image(Media::inline("image/png", bytes.clone()).with_name("cat.png"));
    assert_eq!(given(0), std::slice::from_ref(&with_bytes));

    let fork = chat.fork(None).await.unwrap();
    assert_eq!(fork.media_bytes(&cat, 1 << 20).await.unwrap(), bytes);
    fork.prompt("And now?").await.unwrap().finish().await.unwrap();
    assert_eq!(given(1)[0], with_bytes, "{}: a fork reads the blob of its parent", site.name);

    // Larger than a request may hold; its bytes are not read.
    let film = vec![7; (32 << 20) + 1];
    let info = BlobInfo::of(&film);
    storage.sessions.blobs().put(PutBlob::of_bytes(chat.id(), film)).await.unwrap();
    let film = Media::blob("image/png", info.name, info.bytes).with_name("large.png");
    chat.prompt(Message::new("Look").with_part(Part::Image(film))).await.unwrap().finish().await.unwrap();
    let line = "[image large.png, image/png, 32.0 MiB] (left out: it is too large for a request)";
    assert_eq!(given(2), [with_bytes, Part::text(line)]);
    assert_eq!(storage.sessions.blobs().sweep(SweepBlobs::of(chat.id())).await.unwrap().blobs, 0);
}
each_store!(models_are_given_the_bytes_of_blobs);

/// A picture, a file or a link alone is a prompt, without an empty text beside it, which providers refuse.
async fn a_prompt_needs_no_text(site: Site) {
    let picture = || Part::Image(Media::inline("image/png", *b"\x89PNG\r\n\x1a\n"));
    let file = Part::Resource(Media::inline("application/pdf", *b"%PDF-1.7").with_name("a.pdf"));
    let link = Part::ResourceLink(Media::uri("text/html", "https://example.com/a"));
    let prompts = [
        vec![picture()],
        vec![file],
        vec![link],
        vec![Part::text(""), picture()],
        vec![picture(), Part::text(" \n"), picture()],
        vec![Part::text(""), picture(), Part::text("")],
    ];
    let counts = [1, 1, 1, 1, 2, 1];
    let turns = prompts.iter().map(|_| Turn::new().text("fine"));
    let provider = ScriptedProvider::new(turns);
    let chat = agent(&site.open().await, provider.clone()).conversation("pictures").await.unwrap();
    for parts in prompts {
        chat.prompt(Message::of_parts(parts)).await.unwrap().finish().await.unwrap();
    }
    let last = provider.requests().pop().unwrap();
    let given = last.messages.into_iter().filter_map(|message| match message {
        ModelMessage::User(content) => Some(content.parts),
        _ => None,
    });
    let given: Vec<_> = given.collect();
    assert_eq!(given.iter().map(Vec::len).collect::<Vec<_>>(), counts, "{}: {given:?}", site.name);
    let is_blank = |part: &Part| part.text_view("").is_none_or(|text| text.trim().is_empty());
    assert!(!given.iter().flatten().any(is_blank), "{}: {given:?}", site.name);
}
each_store!(a_prompt_needs_no_text);

/// A conversation whose blob is lost goes on, and the model is given a note of it.
#[tokio::test]
async fn a_lost_blob_does_not_end_a_conversation() {
    let site = Site::new("files").await;
    let storage = site.open().await;
    let provider = ScriptedProvider::new(["one", "two"].map(|text| Turn::new().text(text)));
    let runtime = agent(&storage, provider.clone());
    let chat = runtime.conversation("pictures").await.unwrap();
    let put = PutBlob::of_bytes(chat.id(), "a cat");
    let (name, bytes) = (put.blob.name, put.blob.bytes);
    storage.sessions.blobs().put(put).await.unwrap();
    let cat = Media::new("image/png", MediaSource::Blob { sha256: name, bytes });
    let input = NewEvent::from(Message::new("Look").with_part(Part::Image(cat.clone())));
    let head = chat.refresh().await.unwrap().head;
    let seq = storage.sessions.append(chat.id(), head, vec![input]).await.unwrap().last;
    let fork = chat.fork(None).await.unwrap();
    let mut removed = 0;
    let mut folders = vec![site.folder.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else if entry.file_name().to_string_lossy() == name.to_string() {
                std::fs::remove_file(entry.path()).unwrap();
                removed += 1;
            }
        }
    }
    assert_eq!(removed, 1);
    assert_eq!(chat.prompt("What was it?").await.unwrap().finish().await.unwrap().text, "one");
    let line = "[image, image/png, 5 bytes] (left out: its bytes are lost)";
    assert_eq!(pictures(&provider.requests()[0].messages)[0], Part::text(line));

    // Who reads the bytes is told which event names them, and in which session; then they are put again.
    let read = |seq: Seq| storage.sessions.event_blob(seq, ReadBlob::new(fork.id(), name));
    let lost = read(seq).await.unwrap_err();
    assert_eq!(*lost.kind(), ErrorKind::Corrupt);
    let expected =
        format!("blob {name}, which event {seq} of session {} names, is lost; put the same bytes", chat.id());
    assert!(lost.to_string().contains(&expected), "{lost}");
    assert_eq!(*read(Seq::new(seq.get() - 1)).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(*fork.media_bytes(&cat, 1024).await.unwrap_err().kind(), ErrorKind::NotFound);
    storage.sessions.blobs().put(PutBlob::of_bytes(chat.id(), "a cat")).await.unwrap();
    assert_eq!(read(seq).await.unwrap().into_bytes(1024).await.unwrap(), "a cat");
    assert_eq!(fork.media_bytes(&cat, 1024).await.unwrap(), "a cat");
    // A deleted session gives nothing out under its own id; its fork still reads.
    chat.delete().await.unwrap();
    assert_eq!(*chat.media_bytes(&cat, 1024).await.unwrap_err().kind(), ErrorKind::Deleted);
    assert_eq!(fork.media_bytes(&cat, 1024).await.unwrap(), "a cat");
}
