//! Content of messages: parts, media, citations, what a provider gave, and their stored forms.

use agent_core::commit::Trigger;
use agent_core::event::{
    AgentPart, AgentResponse, Citation, Event, EventPayload, EventType, FullOutput, HostedCall, HostedResult,
    Media, MediaSource, Message, ModelOrigin, Native, NewEvent, Part, ToolOutcome, ToolResult, ToolUse,
};
use agent_core::json::{RawFields, RawJson};
use agent_core::state::SessionState;
use agent_core::{BlobName, ErrorKind, Seq};
use proptest::prelude::*;

use crate::common::{Driver, json};

fn image() -> Media {
    Media::inline("image/png", vec![7; 48_213]).with_name("cat.png")
}

/// Commits one event of the conversation in a run, and returns it as it is stored.
fn stored(event: NewEvent) -> agent_core::Result<Event> {
    let mut driver = Driver::created();
    driver.event(NewEvent::user_message("Hello"))?;
    driver.trigger(Trigger::BeginRun(driver.lease_request()))?;
    let commit = driver.seal_fenced().with_event(event);
    driver.commit(commit)?;
    Ok(driver.log.pop().unwrap())
}

/// Returns the error with which a commit of this event is refused.
fn refused(body: &EventPayload) -> String {
    let error = stored(NewEvent::of(body)).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}");
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

/// A session of plain texts has the same bytes as before there were parts.
#[test]
fn plain_texts_keep_their_bytes() {
    let call = || "c".parse().unwrap();
    for (body, bytes) in [
        (EventPayload::UserMessage(Message::new("a")), r#"{"text":"a"}"#),
        (
            EventPayload::AgentMessage(Message::new("a").with_metadata("k", RawJson::constant("1.0"))),
            r#"{"text":"a","metadata":{"k":1.0}}"#,
        ),
        (EventPayload::AgentThinking(Message::of_parts([Part::text("a")])), r#"{"text":"a"}"#),
        (EventPayload::UserMessage(Message::of_parts([])), r#"{"text":""}"#),
        (
            EventPayload::AgentToolUse(ToolUse::new(call(), "t", RawJson::empty_object())),
            r#"{"call":"c","name":"t","input":{}}"#,
        ),
        (
            EventPayload::AgentToolResult(ToolResult::new(
                call(),
                ToolOutcome::Ok,
                RawJson::constant("\"o\""),
            )),
            r#"{"call":"c","outcome":"ok","output":"o"}"#,
        ),
    ] {
        assert_eq!(body.to_json().get(), bytes);
        assert_eq!(EventPayload::parse(&body.kind(), &json(bytes)).unwrap(), body);
    }
}

/// The stored forms, word for word: what other programs rely on.
#[test]
fn golden_content() {
    let item = RawJson::constant(r#"{"type":"thinking","signature":"EqQB","n":1.50,"a":1e400}"#);
    let native = || Native::new("anthropic.messages", item.clone());
    let origin = ModelOrigin::new("anthropic.messages", "anthropic", "claude-opus-5").with_account("team-a");
    let cat = Media::inline("image/png", *b"\x89PNG").with_name("cat.png");
    let result = ToolResult::new("c".parse().unwrap(), ToolOutcome::Ok, RawJson::constant("\"1 …\""))
        .with_part(Part::Image(Media::uri("image/png", "https://example.com/a.png")))
        .with_structured(RawJson::constant(r#"{"n":1.0}"#))
        .with_full(FullOutput::text("1 2 3"));
    let call = ToolUse::new("c".parse().unwrap(), "t", RawJson::empty_object());
    let search = HostedCall::new("web_search").with_call("s").with_input(RawJson::constant("{}"));
    let found = HostedResult::new(RawJson::constant("[]")).with_call("s").with_name("web_search");
    let bodies = [
        EventPayload::UserMessage(Message::new("What is this?").with_part(Part::Image(cat))),
        EventPayload::AgentThinking(Message::new("A cat …").with_native(native()).with_index(2)),
        EventPayload::AgentMessage(
            Message::new("A tabby.")
                .with_citation(Citation::new("https://cats.example").with_title("Cats").with_range(2, 7)),
        ),
        EventPayload::AgentPart(AgentPart::new(Part::refusal("No.")).with_native(native()).with_index(3)),
        EventPayload::AgentPart(AgentPart::new(Part::HostedCall(search))),
        EventPayload::AgentPart(AgentPart::new(Part::HostedResult(found))),
        EventPayload::AgentToolUse(call.with_omitted(true).with_native(native()).with_index(4)),
        EventPayload::AgentToolResult(result),
        EventPayload::AgentResponse(
            AgentResponse::new(Seq::new(7))
                .with_origin(origin)
                .with_stop("end_turn")
                .with_given("ab".repeat(32))
                .with_replay("canonical"),
        ),
        EventPayload::AgentResponse(AgentResponse::new(Seq::new(8)).with_left_out([BlobName::of(b"cat")])),
        EventPayload::UserMessage(Message::new("A long story").with_shown(6).with_readable(true)),
    ];
    let lines: Vec<_> =
        bodies.iter().map(|body| format!("{} {}", body.kind(), body.to_json().get())).collect();
    assert_eq!(lines.join("\n"), include_str!("golden/content.txt").trim_end());
    for body in bodies {
        assert_eq!(EventPayload::parse(&body.kind(), &body.to_json()).unwrap(), body);
        let event = match &body {
            EventPayload::AgentToolResult(_) | EventPayload::UserMessage(_) => continue,
            body => stored(NewEvent::of(body)).unwrap(),
        };
        assert_eq!(event.decode().unwrap(), body, "the planner changes nothing");
    }
}

/// A part that this version does not know is kept byte for byte, also one that only looks known.
#[test]
fn unknown_parts_are_kept_byte_for_byte() {
    for part in [
        r#"{"type":"hologram","depth":1.50,"big":12345678901234567890,"a":[{"b":1e400}]}"#,
        r#"{"depth":1,"type":"x"}"#,
        r#"{"type":"image","media":7,"data":"AA=="}"#,
        r#"{"type":"image","media":"image/png","data":"no base64"}"#,
        r#"{"type":"image","media":"image/png","data":"AB=="}"#,
        r#"{"type":"image","media":"image/png"}"#,
        r#"{"type":"image","media":"image/png","data":"AA==","blob":{"sha256":"0","bytes":1}}"#,
        r#"{"type":"image","media":"image/png","data":"AA==","name":null}"#,
        r#"{"type":"image","media":"image/png","blob":{"sha256":"0","bytes":1,"chunks":2}}"#,
        r#"{"type":"text","text":null}"#,
        r#"{"type":"text","text":"a","text":"b"}"#,
        r#"{"type":"refusal"}"#,
        r#"{"type":"hosted_call","call":"a"}"#,
        r#"{"type":{"deep":1}}"#,
        r#"{"\u0074ype":"x\u0079","\/":1}"#,
        r#"{"no":"type"}"#,
        "[1.0]",
        "null",
    ] {
        let message = json(&format!(r#"{{"text":"a","parts":[{part}]}}"#));
        let decoded: Message = message.to().unwrap();
        assert_eq!(decoded.parts, [Part::Other(json(part))], "{part}");
        assert_eq!(RawJson::of(&decoded).unwrap(), message);
    }
    // A known part keeps the members that this version does not know.
    for part in [
        r#"{"type":"text","annotations":[1.0]}"#,
        r#"{"type":"image","media":"image/png","blob":{"sha256":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","bytes":48213},"name":"cat.png","alt":null}"#,
        r#"{"type":"resource","media":"text/plain","data":"aGk=","uri":"file:///a"}"#,
        r#"{"type":"resource_link","media":"text/plain","uri":"file:///a","size":1e2}"#,
        r#"{"type":"hosted_result","output":null,"is_error":false}"#,
    ] {
        let known: Part = json(part).to().unwrap();
        assert!(!matches!(known, Part::Other(_)), "{part}");
        assert_eq!(RawJson::of(&known).unwrap().get(), part);
    }
}

/// The text of a message is that of its parts, and a text that is the whole is stored once.
#[test]
fn text_is_made_of_texts_and_refusals() {
    let shape = |message: &Message| -> Vec<String> {
        message.parts.iter().map(|part| RawJson::of(part).unwrap().get().to_owned()).collect()
    };
    let cat = || Part::Image(Media::uri("image/png", "https://a.example"));
    let one = Message::of_parts([cat(), Part::text("a")]);
    assert_eq!((one.text.as_str(), shape(&one)[1].as_str()), ("a", r#"{"type":"text"}"#));
    let two = one.with_part(Part::refusal("b"));
    assert_eq!(two.text, "a\nb");
    assert_eq!(shape(&two)[1..], [r#"{"type":"text","text":"a"}"#, r#"{"type":"refusal","text":"b"}"#]);
    assert_eq!(two.text_view(), "[image, image/png, https://a.example]\na\nb");
    assert_eq!(Message::of_parts([cat()]).text, "");
    assert_eq!(Message::new("").with_part(cat()), Message::of_parts([cat()]));
    // A message of another writer, whose parts have no text.
    let odd: Message = json(r#"{"text":"a","parts":[{"type":"x"}]}"#).to().unwrap();
    assert_eq!(odd.text_view(), "a");
    assert_eq!(odd.with_part(Part::text("b")).text, "a\nb");
}

/// Text views show media, cited sources and hosted calls on a line each, and nothing that leaves its line.
#[test]
fn views_show_media_as_one_line() {
    let asked = Message::new("What is this?").with_part(Part::Image(image()));
    assert_eq!(asked.text_view(), "What is this?\n[image cat.png, image/png, 47 KiB]");
    let event = stored(NewEvent::of(&EventPayload::AgentMessage(asked))).unwrap();
    assert_eq!(event.text().as_deref(), Some("What is this?"), "what data.text holds");
    assert_eq!(event.text_view().as_deref(), Some("What is this?\n[image cat.png, image/png, 47 KiB]"));
    for (part, view) in [
        (Part::refusal("No.\nNever."), Some("No.\nNever.")),
        (Part::Audio(Media::inline("audio/wav", vec![0; 3 << 20])), Some("[audio, audio/wav, 3.0 MiB]")),
        (
            Part::Video(Media::inline("video/mp4", [0]).with_name("a\nb")),
            Some("[video a\u{fffd}b, video/mp4, 1 byte]"),
        ),
        (Part::HostedCall(HostedCall::new("web_search")), Some("[web_search, run by the provider]")),
        (Part::HostedResult(HostedResult::new(RawJson::constant("1"))), None),
        (Part::Other(RawJson::constant(r#"{"type":"x"}"#)), None),
    ] {
        let body = EventPayload::AgentPart(AgentPart::new(part));
        let mut event = event.clone();
        (event.payload, event.kind) = (body.to_json(), EventType::AGENT_PART);
        assert_eq!((event.text().as_deref(), event.text_view().as_deref()), (view, view));
    }
    let blob = MediaSource::Blob { sha256: BlobName::of(b"cat"), bytes: 900 };
    assert_eq!(Media::new("a/b", blob).line("resource"), "[resource, a/b, 900 bytes]");
    let thinking = EventPayload::AgentThinking(Message::new("hm"));
    assert_eq!(stored(NewEvent::of(&thinking)).unwrap().text_view().as_deref(), Some("hm"));
    let response = EventPayload::AgentResponse(AgentResponse::new(Seq::new(1)));
    assert_eq!(stored(NewEvent::of(&response)).unwrap().text_view(), None);
}

/// A commit refuses what no reader could use, and names the fault.
#[test]
fn faulty_content_is_refused() {
    let event = |message| EventPayload::AgentMessage(message);
    let part = |part| EventPayload::AgentMessage(Message::new("né").with_part(part));
    let raw = |text: &'static str| Part::Other(RawJson::constant(text));
    let cite = |from, to| event(Message::new("né").with_citation(Citation::new("u").with_range(from, to)));
    let blob = MediaSource::Blob { sha256: BlobName::of(b""), bytes: 0 };
    for (body, fault) in [
        (cite(0, 4), "byte 4 of a text of 3 bytes"),
        (cite(u64::MAX, 1), "of a text of 3 bytes"),
        (cite(2, 3), "between its characters"),
        (cite(3, 1), "ends at byte 1, before its start at byte 3"),
        (event(Message::new("né").with_shown(2)), "shows 2 bytes of a text of 3"),
        (event(Message::new("né").with_shown(4)), "shows 4 bytes of a text of 3"),
        (
            event(Message::new("a").with_native(Native::new("", RawJson::empty_object()))),
            "API of a native item is empty",
        ),
        (part(Part::Image(Media::new("image/png", blob))), "part 2 (image): a medium has no bytes"),
        (part(Part::Image(Media::inline("image/png", []))), "part 2 (image): a medium has no bytes"),
        (part(Part::Image(Media::inline("png", [1]))), "must be like image/png"),
        (part(Part::Image(Media::uri("image/png", ""))), "address of a medium is empty"),
        (part(Part::Image(image().with_name("a\nb"))), "holds a control character"),
        (part(Part::HostedCall(HostedCall::new(""))), "name of a hosted tool is empty"),
        (part(raw(r#"{"type":"image"}"#)), "members that do not fit it"),
        (part(raw(r#"{"kind":"image"}"#)), "no object with a type"),
        (part(raw("7")), "no object with a type"),
        (EventPayload::AgentPart(AgentPart::new(Part::text("a"))), "write it as an agent.message"),
        (EventPayload::AgentPart(AgentPart::new(raw("7"))), "no object with a type"),
        (EventPayload::AgentResponse(AgentResponse::new(Seq::new(1)).with_given("ab")), "no SHA-256"),
        (
            EventPayload::AgentResponse(
                AgentResponse::new(Seq::new(1)).with_origin(ModelOrigin::new("a", "", "m")),
            ),
            "provider of an answer is empty",
        ),
    ] {
        let error = refused(&body);
        assert!(error.contains(fault), "{error} does not contain {fault:?}");
    }
    for (data, fault) in [
        (
            r#"{"text":"a","parts":[{"type":"text"},{"type":"text"}]}"#,
            "stands for the whole text beside another",
        ),
        (
            r#"{"text":"a","parts":[{"type":"text"},{"type":"refusal","text":"a"}]}"#,
            "stands for the whole text beside",
        ),
        (r#"{"text":"a","citations":[{"start":-1}]}"#, "a start of another type"),
        (r#"{"text":"a","parts":7}"#, "the payload is no agent.message"),
        (r#"{"text":"a","native":{"api":"x"}}"#, "the payload is no agent.message"),
    ] {
        let error = stored(NewEvent::new(EventType::AGENT_MESSAGE, json(data))).unwrap_err();
        assert!(error.to_string().contains(fault), "{error} does not contain {fault:?}");
    }
    let twice = json(r#"{"type":"x","native":null,"native":null}"#);
    assert!(stored(NewEvent::new(EventType::AGENT_PART, twice)).is_err());
    let many = Message::of_parts(vec![Part::Image(Media::uri("image/png", "u")); 4097]);
    let error = stored(NewEvent::of(&EventPayload::AgentMessage(many))).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::LimitExceeded, "{error}");
    let cited = (0..4097).fold(Message::new("a"), |message, _| message.with_citation(Citation::new("u")));
    let error = stored(NewEvent::of(&EventPayload::AgentMessage(cited))).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::LimitExceeded, "{error}");
    let large = Message::new("").with_part(Part::Image(Media::inline("image/png", vec![0; 13 << 20])));
    let error = stored(NewEvent::of(&EventPayload::AgentMessage(large))).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::LimitExceeded, "{error}");
}

/// The whole output of a tool is checked, and its preview is what the model is given.
#[test]
fn full_outputs_are_checked() {
    let result = |full: &str| {
        let mut driver = Driver::created();
        driver.event(NewEvent::tool_use("c".parse().unwrap(), "t", RawJson::empty_object())).unwrap();
        let data = format!(r#"{{"call":"c","outcome":"ok","output":"1","full":{full}}}"#);
        driver.event(NewEvent::new(EventType::AGENT_TOOL_RESULT, json(&data)))
    };
    result(r#"{"media":"text/plain","bytes":5,"text":"1 2 3"}"#).unwrap();
    for (full, fault) in [
        (r#"{"media":"text/plain","bytes":4,"text":"1 2 3"}"#, "has 5 bytes, not 4"),
        (r#"{"media":"text/plain","bytes":5}"#, "is missing"),
        (
            r#"{"sha256":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","bytes":3,"media":"text/plain","text":"abc"}"#,
            "as a text and as a blob",
        ),
        (r#"{"media":"text","bytes":1,"text":"1"}"#, "must be like image/png"),
    ] {
        let error = result(full).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(fault), "{error}");
    }
    // What a later version writes can be read.
    let later = json(
        r#"{"call":"c","outcome":"ok","output":"1","full":{"media":"a/b","bytes":5,"sha256":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}}"#,
    );
    assert_eq!(RawJson::of(&later.to::<ToolResult>().unwrap()).unwrap(), later);
}

/// Items and ends of answers are neither inputs nor changes of the state, also while a run lasts.
#[test]
fn parts_and_responses_change_no_state() {
    let part = NewEvent::of(&EventPayload::AgentPart(AgentPart::new(Part::refusal("No."))));
    let response = NewEvent::of(&EventPayload::AgentResponse(AgentResponse::new(Seq::new(1))));
    let mut driver = Driver::created();
    let fresh = driver.now().clone();
    driver.event(part.clone()).unwrap();
    driver.event(response.clone()).unwrap();
    assert_eq!((driver.now().status, driver.now().inputs_open), (fresh.status, 0));
    assert_eq!(driver.now().counts, fresh.counts);
    driver.event(NewEvent::user_message("Hello")).unwrap();
    driver.trigger(Trigger::BeginRun(driver.lease_request())).unwrap();
    let error = driver.event(part.clone()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Busy { .. }), "only the run writes as the agent: {error}");
    let commit = driver.seal_fenced().with_event(part).with_event(response);
    driver.commit(commit).unwrap();
    assert_eq!(driver.now().status.state, SessionState::Running);
    assert_eq!(driver.log.last().unwrap().actor, agent_core::model::Actor::AGENT);
    assert_eq!(driver.folded(), *driver.now());
    assert!(driver.now().unsupported.is_none());
}

/// Any JSON: numbers of every form, escapes, nested lists and objects. Names are unique, as in any sound object.
fn any_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|value| value.to_string()),
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?",
        any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
        "\"(\\\\u00[0-9a-f]{2}|\\\\/|\\\\ud83d\\\\ude00|[a-z])*\"",
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..4).prop_map(|fields| {
                let fields: Vec<_> =
                    fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
                format!("{{{}}}", fields.join(","))
            }),
        ]
    })
}

fn any_extra() -> impl Strategy<Value = RawFields> {
    // No name of a known member has a capital letter.
    prop::collection::btree_map("[A-Z]\\PC{0,5}", any_json(), 0..3)
        .prop_map(|fields| fields.into_iter().map(|(name, value)| (name, json(&value))).collect())
}

fn any_media() -> impl Strategy<Value = Media> {
    let source = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..64).prop_map(|bytes| MediaSource::Inline(bytes.into())),
        any::<String>().prop_map(MediaSource::Uri),
        (any::<[u8; 32]>(), any::<u64>())
            .prop_map(|(hash, bytes)| MediaSource::Blob { sha256: BlobName::from_sha256(hash), bytes }),
    ];
    (any::<String>(), source, any::<Option<String>>(), any_extra()).prop_map(
        |(media_type, source, name, extra)| {
            let mut media = Media::new(media_type, source);
            (media.name, media.extra) = (name, extra);
            media
        },
    )
}

fn any_part() -> impl Strategy<Value = Part> {
    let hosted = (any::<String>(), any::<Option<String>>(), prop::option::of(any_json()), any_extra());
    prop_oneof![
        (any::<String>(), any_extra()).prop_map(|(own, more)| extended(&Part::text(own), &more)),
        any_extra().prop_map(|more| extended(&Part::whole_text(), &more)),
        (any::<String>(), any_extra()).prop_map(|(own, more)| extended(&Part::refusal(own), &more)),
        (any_media(), 0..5_usize).prop_map(|(media, kind)| {
            [Part::Image, Part::Audio, Part::Video, Part::Resource, Part::ResourceLink][kind](media)
        }),
        (hosted, any::<bool>()).prop_map(|((name, call, data, extra), is_call)| {
            let data = data.map(|data| json(&data));
            if is_call {
                let mut made = HostedCall::new(name);
                (made.call, made.input, made.extra) = (call, data, extra);
                Part::HostedCall(made)
            } else {
                let mut made = HostedResult::new(RawJson::empty_object()).with_name(name);
                (made.call, made.output, made.extra) = (call, data, extra);
                Part::HostedResult(made)
            }
        }),
        ("[a-z_.]{1,12}", any_json(), any_json()).prop_map(|(tag, one, two)| {
            Part::Other(json(&format!(r#"{{"b":{one},"type":"x{tag}","a":{two}}}"#)))
        }),
        any_json().prop_map(|any| Part::Other(json(&any))),
    ]
}

/// Adds members that this version does not know.
fn extended(part: &Part, more: &RawFields) -> Part {
    let mut fields: RawFields = RawJson::of(part).unwrap().to().unwrap();
    more.iter().for_each(|(name, value)| fields.insert(name, value.clone()));
    RawJson::of(&fields).unwrap().to().unwrap()
}

proptest! {
    /// Parts of any tag, with any members, numbers and escapes, have one stored form.
    #[test]
    fn parts_round_trip(parts in prop::collection::vec(any_part(), 0..5), item in any_json(), cited in any_extra()) {
        let encoded: Vec<_> = parts.iter().map(|part| RawJson::of(part).unwrap()).collect();
        for (part, encoded) in parts.iter().zip(&encoded) {
            let decoded: Part = encoded.to().unwrap();
            prop_assert_eq!(&decoded, part);
            prop_assert_eq!(&RawJson::of(&decoded).unwrap(), encoded);
            let event = AgentPart::new(part.clone()).with_native(Native::new("x", json(&item))).with_index(3);
            let stored = RawJson::of(&event).unwrap();
            if !matches!(part, Part::Other(raw) if !raw.get().starts_with('{')) {
                prop_assert_eq!(&stored.to::<AgentPart>().unwrap(), &event);
            }
        }
        let mut message = Message::new("x").with_native(Native::new("x", json(&item)));
        message.parts = parts;
        message.citations = vec![Citation::of(cited)];
        let stored = RawJson::of(&message).unwrap();
        prop_assert_eq!(&stored.to::<Message>().unwrap(), &message);
        prop_assert_eq!(RawJson::of(&stored.to::<Message>().unwrap()).unwrap(), stored);
        prop_assert_eq!(message.native.unwrap().item, json(&item), "native items stay as they came");
    }
}
