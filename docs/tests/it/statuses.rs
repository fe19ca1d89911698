//! Each kind of error has one HTTP status: the pages and the example server agree.

use std::collections::BTreeMap;
use std::fs;

use docs::root;

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Statuses by kind in the table of operations.
fn table() -> BTreeMap<String, u16> {
    let text = read("docs/operations.md");
    let rows = text.lines().skip_while(|line| !line.starts_with("| Kind | HTTP |")).skip(2);
    rows.map_while(|row| {
        let mut cells = row.strip_prefix("| `")?.split(" | ");
        let kind = cells.next()?.trim_end_matches('`').to_owned();
        Some((kind, cells.next()?.get(..3)?.parse().unwrap()))
    })
    .collect()
}

/// Statuses by kind in the example server.
fn server() -> BTreeMap<String, u16> {
    let numbers = [
        ("BAD_REQUEST", 400),
        ("NOT_FOUND", 404),
        ("CONFLICT", 409),
        ("GONE", 410),
        ("PAYLOAD_TOO_LARGE", 413),
        ("INTERNAL_SERVER_ERROR", 500),
        ("NOT_IMPLEMENTED", 501),
        ("BAD_GATEWAY", 502),
        ("SERVICE_UNAVAILABLE", 503),
        ("GATEWAY_TIMEOUT", 504),
        ("INSUFFICIENT_STORAGE", 507),
    ];
    let text = read("examples/server/src/refused.rs");
    let arms = text.split("match error.kind() {").nth(1).unwrap().split("};").next().unwrap();
    let mut found = BTreeMap::new();
    let mut kinds = Vec::new();
    for piece in arms.split("ErrorKind::").skip(1) {
        kinds.push(piece.chars().take_while(|c| c.is_alphanumeric()).collect::<String>());
        let Some((condition, status)) = piece.split_once("=>") else { continue };
        let name = status.split("StatusCode::").nth(1).unwrap();
        let name: String = name.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
        let number = numbers.iter().find(|(known, _)| *known == name).unwrap().1;
        let own = kinds.drain(..);
        // What holds under a condition is not the rule.
        found.extend(own.filter(|_| !condition.contains(" if ")).map(|kind| (kind, number)));
    }
    found
}

/// Statuses by kind in the page about servers: `A` and `B` 410, `C` 404 …
fn page() -> BTreeMap<String, u16> {
    let text = read("docs/cookbook/serve-over-http.md");
    let line = text.split("says what a status says:").nth(1).unwrap();
    let (mut found, mut kinds) = (BTreeMap::new(), Vec::new());
    for (at, piece) in line.split('`').enumerate() {
        if at % 2 == 1 {
            kinds.push(piece.to_owned());
        } else if let Some(number) = piece.split([' ', ',', ';', '\n']).find_map(|word| word.parse().ok()) {
            found.extend(kinds.drain(..).map(|kind| (kind, number)));
        }
    }
    found
}

#[test]
fn each_kind_of_error_has_one_status() {
    let table = table();
    assert_eq!(table.len(), 16, "{table:?}");
    assert_eq!(table["Expired"], 410);
    let (server, page) = (server(), page());
    assert!(server.len() > 10 && page.len() > 7, "{server:?} {page:?}");
    for (kind, status) in server.iter().chain(&page) {
        assert_eq!(table.get(kind), Some(status), "{kind}");
    }
    for kind in table.keys().filter(|kind| !server.contains_key(*kind)) {
        assert_eq!(table[kind], 500, "the server has no status for {kind}");
    }
}
