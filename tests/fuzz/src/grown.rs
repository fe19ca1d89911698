//! Inputs of one shape in any size, whose instructions are counted: what is twice as long must not take four times as many.

/// Shape of an input: its middle is repeated. `#` in the middle stands for the number of the repetition.
#[derive(Clone, Copy, Debug)]
pub struct Grown {
    /// Target that reads it.
    pub target: &'static str,
    /// Description of the shape, in a few words.
    pub shape: &'static str,
    before: &'static str,
    start: &'static str,
    middle: &'static str,
    end: &'static str,
}

impl Grown {
    /// Returns the input with at least this many bytes.
    pub fn input(&self, bytes: usize) -> Vec<u8> {
        let mut text = format!("{}{}", self.before, self.start);
        let mut n = 0;
        while text.len() < bytes {
            text.push_str(&self.middle.replace('#', &format!("{n:08}")));
            n += 1;
        }
        text.push_str(self.end);
        text.into_bytes()
    }
}

const HEAD: &str = r#"{"seq":2,"id":"019c60d9-9c8d-8961-9769-aeba60afb10e","commit":"019c60d9-9c8d-7961-9769-aeba60afb10e","n":1,"of":1,"at":"2026-02-15T10:30:00.078000Z","actor":"user","#;

const fn grown(
    target: &'static str,
    shape: &'static str,
    start: &'static str,
    middle: &'static str,
    end: &'static str,
) -> Grown {
    Grown { target, shape, before: "", start, middle, end }
}

/// All shapes.
const GROWN: &[Grown] = &[
    grown("record", "unknown fields", r#"{"id":"default""#, r#","f#":1"#, "}"),
    grown("record", "lists in lists", r#"{"id":"#, "[", "]"),
    grown("cursor", "escapes", "c2.0000000000000000.", "%41", ""),
    grown("address", "options", "sqlite:/a?", "sync=off&", ""),
    grown("address", "escapes", "sqlite:", "%41%", ""),
    grown("names", "JSON with space", "[", "1 , ", "2]"),
    grown(
        "state",
        "messages",
        r#"{"format":1,"kind":"state","history":["#,
        r#"{"role":"user","text":"a"},"#,
        r#"{"role":"user","text":"a"}]}"#,
    ),
    grown(
        "state",
        "documents",
        r#"{"format":1,"kind":"state","documents":{"#,
        r#""d#":{"text":"a"},"#,
        r#""d":{"text":"a"}}}"#,
    ),
    grown("transcript", "messages", "---\nformat: 2\n---\n", "## User\nHello\n", ""),
    grown("transcript", "fields", "---\nformat: 2\n", "f#: 1\n", "---\n"),
    grown("transcript", "blank lines", "---\nformat: 2\n---\n## User\n", "\n", ""),
    grown("configuration", "keys", "", "k# = 1\n", ""),
    grown("configuration", "tables", "", "[t#.a]\nk = 1\n", ""),
    grown("configuration", "keys of a protected table", "[providers]\n", "k#.model = 'a'\n", "\n----\n"),
    grown("configuration", "a text", "k = '''", "a\n", "'''\n"),
];

/// Shapes of events, which have one head.
const EVENTS: &[(&str, &str, &str, &str)] = &[
    ("a text", r#""type":"user.message","data":{"text":""#, r"a\n", r#""}}"#),
    ("unknown fields", r#""type":"user.message","data":{"text":"a"}"#, r#","f#":1"#, "}"),
    ("fields of the payload", r#""type":"user.message","data":{"text":"a""#, r#","f#":1"#, "}}"),
    (
        "parts",
        r#""type":"user.message","data":{"text":"a","parts":["#,
        r#"{"type":"text","text":"a"},"#,
        r#"{"type":"text","text":"a"}]}}"#,
    ),
    (
        "blobs",
        r#""type":"x.a","data":{},"blobs":["#,
        r#""81db8ebbbbc69c6c6ad4a6aa92b76e0c08af547da236b9e2c9dbe1d8285a8130","#,
        r#""81db8ebbbbc69c6c6ad4a6aa92b76e0c08af547da236b9e2c9dbe1d8285a8130"]}"#,
    ),
    ("labels", r#""type":"session.updated","data":{"labels":{"#, r#""l#":"a","#, r#""l":"a"}}}"#),
    ("metadata", r#""type":"session.updated","data":{"metadata":{"#, r#""l#":"a","#, r#""l":"a"}}}"#),
    (
        "inputs of a call",
        r#""type":"agent.tool_use","data":{"call":"a","name":"t","input":{"#,
        r#""i#":1,"#,
        r#""i":1}}}"#,
    ),
];

/// Returns all shapes of all targets.
pub fn shapes() -> Vec<Grown> {
    let events = EVENTS.iter().map(|(shape, start, middle, end)| Grown {
        before: HEAD,
        ..grown("event", shape, start, middle, end)
    });
    GROWN.iter().copied().chain(events).collect()
}
