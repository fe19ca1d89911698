//! The transcript as Markdown, both ways.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use agent_core::event::{EventPayload, NewEvent, SystemMessage};
use agent_core::{CommitId, ErrorKind, Seq, SessionId};
use agent_transcript::*;
use proptest::prelude::*;

fn mark() -> Mark {
    Mark::new(Seq::new(42), "019c60d9-9c44-79b5-81d1-d854bb718002".parse::<CommitId>().unwrap())
}

fn sealed(transcript: &Transcript) -> String {
    let mut writer = TranscriptWriter::start(&transcript.frontmatter);
    for message in &transcript.messages {
        writer.message(message);
    }
    let seal = writer.seal(mark());
    writer.take() + &seal
}

fn with_messages(messages: &[(Speaker, &str)]) -> Transcript {
    let session: SessionId = "019c60d9-9c41-715c-8289-ec2d0a9167ec".parse().unwrap();
    let frontmatter = Frontmatter::new(session, "2026-02-15T10:30:00Z".parse().unwrap())
        .with_provider(Some("claude".to_owned()))
        .with_model(Some("claude-sonnet-4-20250514".to_owned()));
    messages.iter().fold(Transcript::new(frontmatter), |transcript, (speaker, text)| {
        transcript.with(TranscriptMessage::new(*speaker, *text))
    })
}

/// Text that imitates each line that means something, plain and escaped, once and twice.
fn line() -> impl Strategy<Value = String> {
    let structure = prop_oneof![
        Just("## User"),
        Just("## Assistant"),
        Just("## System"),
        Just("## Tool"),
        Just("---"),
        Just("format: 2"),
        Just("json \"x\""),
        Just("json \""),
        Just("json"),
        Just("<!-- rendered head=1 commit=019c60d9-9c44-79b5-81d1-d854bb718002 crc32c=00000000 -->"),
        Just("<!-- rendered "),
        Just("```"),
        Just(""),
    ];
    let imitation = ("\\\\{0,3}", structure, "[ \t\r]{0,2}").prop_map(|(a, b, c)| format!("{a}{b}{c}"));
    let awkward = "[\\x00-\\x1f\\x7f-\\x9f\u{2028}\u{2029}\u{feff}\\\\\"a ]{0,6}";
    prop_oneof![4 => imitation, 1 => awkward, 1 => any::<String>()]
}

fn text() -> impl Strategy<Value = String> {
    let end = prop_oneof![4 => Just("\n"), 1 => Just("\r\n"), 1 => Just("\r"), 1 => Just("")];
    prop::collection::vec((line(), end), 0..6)
        .prop_map(|lines| lines.into_iter().map(|(line, end)| line + end).collect())
}

fn transcript() -> impl Strategy<Value = Transcript> {
    let speaker = prop::sample::select(Speaker::ALL.to_vec());
    let name = || prop::option::of(prop_oneof![any::<String>(), line(), Just(String::new())]);
    (prop::collection::vec((speaker, text()), 0..5), name(), name()).prop_map(
        |(messages, provider, model)| {
            let mut transcript = with_messages(&[]);
            transcript.frontmatter = transcript.frontmatter.with_provider(provider).with_model(model);
            let message = |(speaker, text)| TranscriptMessage::new(speaker, text);
            transcript.messages = messages.into_iter().map(message).collect();
            transcript
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Any text comes back byte for byte, from the same speaker, also text that imitates structure.
    #[test]
    fn every_transcript_comes_back_byte_for_byte(transcript in transcript()) {
        let text = sealed(&transcript);
        let awkward = |c: char| c.is_control() && c != '\n' && c != '\t';
        prop_assert!(!text.contains(awkward), "nothing that a terminal obeys stands in it");
        let parsed = Transcript::parse(&text).unwrap();
        prop_assert_eq!(&parsed.transcript, &transcript);
        prop_assert_eq!(parsed.form, TranscriptForm::Sealed(mark()));
        let edited = Transcript::parse(&transcript.to_markdown()).unwrap();
        prop_assert_eq!((edited.transcript, edited.form), (transcript, TranscriptForm::Edited));
    }

    /// An editor that writes CRLF, a byte order mark, or no last line break, changes nothing of what is said.
    #[test]
    fn crlf_bom_and_missing_newline_change_no_text(transcript in transcript()) {
        let text = sealed(&transcript);
        for edited in [text.replace('\n', "\r\n"), format!("\u{feff}{text}"), text[..text.len() - 1].to_owned()] {
            prop_assert_eq!(&Transcript::parse(&edited).unwrap().transcript, &transcript);
        }
    }

    /// No change of a byte, and no cut, goes unnoticed.
    #[test]
    fn every_changed_byte_is_detected(
        transcript in transcript(), at in any::<prop::sample::Index>(), to in any::<u8>(),
    ) {
        let text = sealed(&transcript);
        let mut bytes = text.clone().into_bytes();
        let at = at.index(bytes.len());
        prop_assume!(bytes[at] != to);
        bytes[at] = to;
        for changed in [String::from_utf8(bytes).ok(), text.get(..at).map(str::to_owned)].into_iter().flatten() {
            if let Ok(parsed) = Transcript::parse(&changed) {
                prop_assert!(!matches!(parsed.form, TranscriptForm::Sealed(_)), "{changed:?}");
            }
        }
    }

    /// Whatever stands in a file, reading it ends with an answer.
    #[test]
    fn any_text_is_read_or_refused(lines in prop::collection::vec(line(), 0..12), any in any::<String>()) {
        let _ = Transcript::parse(&any);
        let text = lines.join("\n");
        let _ = Transcript::parse(&text);
        let _ = Transcript::parse(&format!("---\nformat: 2\n{text}"));
        if let Ok(parsed) = Transcript::parse(&format!("---\nformat: 2\n---\n{text}\n")) {
            // What was read is what is written from then on.
            let again = Transcript::parse(&parsed.transcript.to_markdown()).unwrap();
            prop_assert_eq!(again.transcript, parsed.transcript);
        }
    }

    /// What is added piece by piece is what is written at once.
    #[test]
    fn appending_in_pieces_equals_one_write(transcript in transcript(), at in 0usize..5) {
        let at = at.min(transcript.messages.len());
        let mut writer = TranscriptWriter::start(&transcript.frontmatter);
        transcript.messages[..at].iter().for_each(|message| writer.message(message));
        let mut text = writer.take();
        let mut writer = TranscriptWriter::resume(writer.len(), writer.checksum());
        transcript.messages[at..].iter().for_each(|message| writer.message(message));
        text += &writer.take();
        text += &writer.seal(mark());
        prop_assert_eq!(text, sealed(&transcript));
    }
}

/// The very bytes, so that they stay.
#[test]
fn rendered_markdown_is_pinned() {
    let transcript = with_messages(&[
        (Speaker::System, "Be brief."),
        (Speaker::User, "What is\n## User\nand \\## User?\n---\n"),
        (Speaker::Assistant, ""),
        (Speaker::User, "bell \u{7}\r\nplain \\json \"x\"\n\\json \"x\""),
    ]);
    let text = concat!(
        "---\nformat: 2\nsession: 019c60d9-9c41-715c-8289-ec2d0a9167ec\nprovider: claude\n",
        "model: claude-sonnet-4-20250514\ncreated_at: 2026-02-15T10:30:00.000000Z\n---\n\n",
        "## System\n\nBe brief.\n\n",
        "## User\n\nWhat is\n\\## User\nand \\## User?\n---\n\n\n",
        "## Assistant\n\n\n\n",
        "## User\n\n\\json \"bell \\u0007\\r\"\nplain \\json \"x\"\n\\\\json \"x\"\n\n",
        "<!-- rendered head=42 commit=019c60d9-9c44-79b5-81d1-d854bb718002 crc32c=729fe4ae -->\n",
    );
    assert_eq!(sealed(&transcript), text);
    assert_eq!(Transcript::parse(text).unwrap().transcript, transcript);
}

/// What a person adds at the end, and behind the mark, is read; what belongs to nobody is refused with its line.
#[test]
fn valid_manual_edits_are_read() {
    let text = sealed(&with_messages(&[(Speaker::User, "hello"), (Speaker::Assistant, "hi")]));
    let edited = format!("{}\n## User  \nand now?\n## Assistant\n\n\nwell", text.replace("hello", "Hello!"));
    let parsed = Transcript::parse(&edited).unwrap();
    assert_eq!(parsed.form, TranscriptForm::Edited);
    let messages: Vec<_> =
        parsed.transcript.messages.iter().map(|message| (message.speaker, message.text.as_str())).collect();
    let expected = [
        (Speaker::User, "Hello!"),
        (Speaker::Assistant, "hi"),
        (Speaker::User, "and now?"),
        (Speaker::Assistant, "\nwell"),
    ];
    assert_eq!(messages, expected);

    for (text, expected) in [
        (format!("{text}more"), "line 18 of the transcript"),
        (text.replace("hello", "\\json \"hello"), "line 11 of the transcript"),
        (text.replace("---\n\n", "\n"), "the frontmatter has no end"),
        (text.replace("claude\n", "\"claude\n"), "line 4 of the transcript"),
        (text.replace("format: 2", "format: x"), "line 2 of the transcript"),
        (text.replace("hello", "hel\0lo"), "NUL"),
    ] {
        let error = Transcript::parse(&text).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains(expected), "{error}\n{text}");
    }
}

/// The older form is read as such; a newer one is refused by its number.
#[test]
fn old_format_is_read_and_newer_is_refused() {
    let text = concat!(
        "---\nprovider: claude\nmodel: claude-sonnet-4-20250514\ncreated_at: 2026-02-15T10:30:00Z\n---\n\n",
        "## User\n\nWhat files are in the current directory?\n\n",
        "## Assistant\n\nHere are the files:\n- src/\n\n### Not a heading of ours\n\\## User\n\n",
        "## Tool\n\nls\n\n## System\n\n\n",
    );
    let parsed = Transcript::parse(text).unwrap();
    assert_eq!(parsed.form, TranscriptForm::Legacy);
    let header = &parsed.transcript.frontmatter;
    assert_eq!(header.provider.as_deref(), Some("claude"));
    assert_eq!(header.created_at.unwrap().to_string(), "2026-02-15T10:30:00.000000Z");
    let messages: Vec<_> =
        parsed.transcript.messages.iter().map(|message| (message.speaker, message.text.as_str())).collect();
    let expected = [
        (Speaker::User, "What files are in the current directory?"),
        (Speaker::Assistant, "Here are the files:\n- src/\n\n### Not a heading of ours\n\\## User"),
        (Speaker::Tool, "ls"),
        (Speaker::System, ""),
    ];
    assert_eq!(messages, expected);
    // The agent lost the top of it.
    let bare = Transcript::parse("## User\n\nhello\n").unwrap();
    assert_eq!((bare.transcript.messages.len(), bare.form), (1, TranscriptForm::Legacy));
    assert_eq!(Transcript::parse("").unwrap().transcript.messages, []);

    let error = Transcript::parse("---\nformat: 3\n---\n\n## User\n\nhello\n").unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("format 3"), "{error}");
    let error = Transcript::parse("---\nformat: 0\n---\n\n## User\n\nhello\n").unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt, "there never was such a format");
}

/// What stands in it, and what becomes of it in a log.
#[test]
fn transcript_holds_exactly_the_messages() {
    for speaker in [Speaker::User, Speaker::Assistant, Speaker::System] {
        let message = TranscriptMessage::new(speaker, "text");
        let event = message.to_event();
        let body = EventPayload::parse(&event.kind, &event.payload).unwrap();
        assert_eq!(TranscriptMessage::of(body), Some(message));
    }
    let tool = TranscriptMessage::new(Speaker::Tool, "ls").to_event();
    assert_eq!(tool, NewEvent::of(&EventPayload::SystemMessage(SystemMessage::injected("ls"))));
    let silent = NewEvent::tool_use("c1".parse().unwrap(), "ls", agent_core::json::RawJson::empty_object());
    for event in [tool, silent, NewEvent::history_cleared()] {
        assert_eq!(TranscriptMessage::of(EventPayload::parse(&event.kind, &event.payload).unwrap()), None);
    }
}
