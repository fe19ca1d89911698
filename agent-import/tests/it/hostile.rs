//! Sources with contents that no program writes.

use std::path::Path;

use agent_admin::verify::verify;
use agent_core::{MemoryStore, Result, Storage};
use agent_import::{Format, Import};
use serde_json::{Value, json};

/// Values that no program writes in a place.
pub(crate) fn hostile() -> Vec<Value> {
    let mut deep = json!(0);
    for _ in 0..110 {
        deep = json!([deep]);
    }
    vec![
        json!(null),
        json!(true),
        json!(-1),
        json!(1e300),
        json!("\u{0}\u{7}\u{202e}\n"),
        json!([]),
        json!({}),
        json!([[{"type": 7}], null, "text"]),
        json!({"type": "text", "id": {"a": 1}}),
        deep,
        json!("x".repeat(5000)),
    ]
}

/// Puts a value in each place of a JSON value, one after the other.
pub(crate) fn places(json: &Value, path: &mut Vec<String>, found: &mut Vec<String>) {
    found.push(path.iter().map(|key| format!("/{}", key.replace('~', "~0").replace('/', "~1"))).collect());
    let children: Vec<(String, &Value)> = match json {
        Value::Array(list) => list.iter().enumerate().map(|(at, child)| (at.to_string(), child)).collect(),
        Value::Object(map) => map.iter().map(|(key, child)| (key.clone(), child)).collect(),
        _ => Vec::new(),
    };
    for (key, child) in children {
        path.push(key);
        places(child, path, found);
        path.pop();
    }
}

/// Checks that an import ends, with a log that is sound, whatever a source says.
pub(crate) async fn survives(format: Format, path: &Path, what: &str) -> Result<bool> {
    let storage = Storage::from(MemoryStore::new());
    let done = Import::new(format, path).with_unknown().with_finished().run(&storage).await;
    let checked = verify(&storage, |_| {}).await?;
    assert!(checked.is_sound(), "{format}: {what}: {checked:?}");
    match done {
        Ok(report) => {
            assert!(report.refused.is_empty(), "{format}: {what}: {report:?}");
            Ok(true)
        }
        Err(_) => Ok(false),
    }
}

/// Checks that no member of any line of a file fails its session, and neither do bytes that are no JSON.
pub(crate) async fn lines(format: Format, file: &Path) -> Result<()> {
    let text = std::fs::read_to_string(file).expect("the sample");
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join(file.file_name().expect("a name"));
    let (hostile, mut number) = (hostile(), 0);
    let all: Vec<&str> = text.lines().collect();
    for (at, line) in all.iter().enumerate() {
        let json: Value = serde_json::from_str(line).expect("JSON");
        let mut found = Vec::new();
        places(&json, &mut Vec::new(), &mut found);
        for place in found {
            let mut changed = json.clone();
            number += 1;
            let value = &hostile[number % hostile.len()];
            *changed.pointer_mut(&place).expect("a place") = value.clone();
            let changed = changed.to_string();
            let lines: Vec<&str> =
                all[..at].iter().copied().chain([&*changed]).chain(all[at + 1..].iter().copied()).collect();
            std::fs::write(&copy, lines.join("\n") + "\n").expect("a file");
            assert!(survives(format, &copy, &format!("line {at} {place}: {value}")).await?);
        }
        let mut bytes = text.clone().into_bytes();
        let middle = all[..at].iter().map(|line| line.len() + 1).sum::<usize>() + line.len() / 2;
        bytes[middle] = if at % 2 == 0 { 0xff } else { 0 };
        std::fs::write(&copy, bytes).expect("a file");
        assert!(survives(format, &copy, &format!("line {at} with bytes that are no text")).await?);
    }
    assert!(number > 50, "{number}");
    Ok(())
}
