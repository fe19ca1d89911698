//! Configuration in layers.

use agent_core::{Error, ErrorKind};
use agent_runtime::configuration::{ConfigLayer, ConfigLayers, LayeredConfig};
use proptest::prelude::*;

const GLOBAL: &str = r#"
provider = "claude"
plugins = ["a", "b"]
turns = 50

[providers.claude]
model = "opus"
base_url = "https://a"
[providers.claude.retry]
attempts = 3
wait = 1.5

[providers.gemini]
model = "pro"
"#;

fn layers(workspace: &str) -> agent_core::Result<ConfigLayers> {
    let layers = ConfigLayers::new().with_global(GLOBAL)?.with_workspace(workspace)?;
    layers
        .with_protected("providers.*.base_url")?
        .with_protected("tools.shell")?
        .with_secret_variable("KEY", "providers.claude.api_key")?
        .with_variable("PROVIDER", "provider")?
        .with_variable("TURNS", "turns")
}

fn merged(workspace: &str) -> agent_core::Result<LayeredConfig> {
    layers(workspace)?.merge(|_| None)
}

fn refused(done: agent_core::Result<LayeredConfig>) -> Error {
    let error = done.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidInput);
    error
}

/// The workspace's fields win one by one, at any depth; arrays are replaced; what it does not say is inherited; each
/// value has its layer.
#[test]
fn the_workspace_overrides_field_by_field() {
    let config = merged(
        "provider = 'gemini'\nplugins = ['c']\n[providers.claude]\nretry.attempts = 5\n[providers.local]\nmodel = 'm'",
    )
    .unwrap();
    let expected: toml::Table = r#"
        provider = "gemini"
        plugins = ["c"]
        turns = 50
        providers.claude.model = "opus"
        providers.claude.base_url = "https://a"
        providers.claude.retry = { attempts = 5, wait = 1.5 }
        providers.gemini.model = "pro"
        providers.local.model = "m"
    "#
    .parse()
    .unwrap();
    assert_eq!(*config.values(), expected);
    let from = |key: &str| config.layer(key).unwrap();
    for key in ["provider", "plugins", "providers.claude.retry.attempts", "providers.local.model"] {
        assert_eq!(from(key), ConfigLayer::Workspace, "{key}");
    }
    for key in ["turns", "providers.claude.model", "providers.claude.retry.wait", "providers.gemini.model"] {
        assert_eq!(from(key), ConfigLayer::Global, "{key}");
    }
    assert!(
        config.explain().contains("providers.claude.retry.attempts = 5  # workspace\n"),
        "{}",
        config.explain()
    );
    assert_eq!(merged("").unwrap().text("provider"), Some("claude"));
}

/// What only the host may set is refused from a workspace, however it is spelled, and so is what would take its
/// place.
#[test]
fn protected_keys_are_refused_on_every_path() {
    for workspace in [
        "providers.claude.base_url = 'https://evil'",
        "[providers.claude]\nbase_url = 'https://evil'",
        "[providers]\nclaude = { base_url = 'https://evil' }",
        "providers = { claude = { \"base_url\" = 'https://evil' } }",
        "'providers'.\"cl\\u0061ude\".'base_url' = 'https://evil'",
        "[providers.new]\nbase_url = 'https://evil'",
        "[providers.new.base_url]\nhost = 'evil'",
        "[[providers.new.base_url]]\nhost = 'evil'",
        "providers.\"dotted.name\".base_url = 'https://evil'",
        "[tools.shell]\nallow = ['evil']",
        "tools.shell = 'evil'",
        "tools = 'evil'",
        "tools = ['evil']",
        "[[tools]]\nshell = 'evil'",
        "[[providers]]\nbase_url = 'evil'",
        "providers = 'evil'",
        "providers.claude = 'evil'",
    ] {
        let error = refused(merged(workspace));
        assert!(error.to_string().starts_with("the workspace configuration: "), "{workspace}: {error}");
        assert!(!error.to_string().contains("evil"), "no value in an error: {error}");
    }
    // A table and something else do not meet, protected or not.
    for workspace in ["provider.name = 'x'", "providers.claude.retry = 3", "turns = {}"] {
        refused(merged(workspace));
    }
    // The host may.
    let host = ConfigLayers::new().with_protected("a.b").unwrap().with_global("a.b = 1").unwrap();
    assert_eq!(host.merge(|_| None).unwrap().layer("a.b"), Some(ConfigLayer::Global));
}

/// A variable that is set beats both files, in the type that these have; one that is empty sets nothing.
#[test]
fn a_set_variable_beats_both_files() {
    let lookup = |name: &str| {
        match name {
            "KEY" => Some("sk-secret"),
            "PROVIDER" => Some("openai"),
            "TURNS" => Some("7"),
            _ => None,
        }
        .map(str::to_owned)
    };
    let config = layers("provider = 'gemini'\nturns = 60").unwrap().merge(lookup).unwrap();
    assert_eq!(config.text("provider"), Some("openai"));
    assert_eq!(config.get("turns").unwrap().as_integer(), Some(7));
    assert_eq!(config.text("providers.claude.api_key"), Some("sk-secret"));
    assert_eq!(config.text("providers.claude.model"), Some("opus"));
    assert_eq!(config.layer("provider"), Some(ConfigLayer::Environment));

    let empty = layers("provider = 'gemini'").unwrap().merge(|_| Some(String::new())).unwrap();
    assert_eq!(empty.text("provider"), Some("gemini"));
    let error = refused(layers("").unwrap().merge(|name| (name == "TURNS").then(|| "sk-oops".to_owned())));
    assert!(error.to_string().contains("TURNS") && !error.to_string().contains("sk-oops"), "{error}");
}

/// A secret is named with its layer, and its value is shown nowhere; nor is the text of a file that is no TOML.
#[test]
fn secrets_are_named_and_never_shown() {
    let config = layers("[[accounts]]\nkey = 'sk-array'")
        .unwrap()
        .with_secret("accounts.key")
        .unwrap()
        .merge(|name| (name == "KEY").then(|| "sk-secret".to_owned()))
        .unwrap();
    let explained = config.explain();
    assert!(explained.contains("providers.claude.api_key = (secret)  # environment\n"), "{explained}");
    assert!(explained.contains("accounts = (secret)  # workspace\n"), "{explained}");
    assert!(!explained.contains("sk-"), "{explained}");
    let error = ConfigLayers::new().with_global("a = 1\nkey = sk-secret\n").unwrap_err();
    assert!(error.to_string().contains("line 2") && !format!("{error:?}").contains("sk-"), "{error:?}");
}

fn value() -> impl Strategy<Value = toml::Value> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(toml::Value::Integer),
        "[a-z\"\\\\.\n]{0,4}".prop_map(toml::Value::String),
        prop::collection::vec(any::<bool>().prop_map(toml::Value::Boolean), 0..3)
            .prop_map(toml::Value::Array),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop::collection::btree_map("[ab.\"]", inner, 0..4)
            .prop_map(|fields| toml::Value::Table(fields.into_iter().collect()))
    })
}

fn table() -> impl Strategy<Value = toml::Table> {
    prop::collection::btree_map("[ab.\"]", value(), 0..4).prop_map(|fields| fields.into_iter().collect())
}

/// Each value that is no table, with its path.
fn leaves(table: &toml::Table) -> Vec<(Vec<String>, toml::Value)> {
    let mut out = Vec::new();
    for (name, value) in table {
        match value {
            toml::Value::Table(below) => out.extend(
                leaves(below).into_iter().map(|(path, value)| ([vec![name.clone()], path].concat(), value)),
            ),
            other => out.push((vec![name.clone()], other.clone())),
        }
    }
    out
}

proptest! {
    /// Of any two tables either each value comes from the upper one, or else from the lower one, and no other;
    /// or a table and something else meet, and it is refused. The same table over itself changes nothing.
    #[test]
    fn any_layers_merge_by_field_or_are_refused(lower in table(), upper in table()) {
        let layers = |workspace: &toml::Table| {
            ConfigLayers::new().with_global(&lower.to_string()).unwrap().with_workspace(&workspace.to_string()).unwrap()
        };
        if let Ok(config) = layers(&upper).merge(|_| None) {
            let (low, high) = (leaves(&lower), leaves(&upper));
            let mut expected: std::collections::BTreeMap<_, _> = low.into_iter().collect();
            expected.extend(high);
            let found: std::collections::BTreeMap<_, _> = leaves(config.values()).into_iter().collect();
            prop_assert_eq!(found, expected);
            prop_assert!(config.explain().lines().count() >= leaves(config.values()).len());
        }
        let same = layers(&lower).merge(|_| None).unwrap();
        prop_assert_eq!(same.values(), &lower);
    }
}

/// Where a value comes from is told by its name as TOML spells it; a table that holds nothing is told of while no layer
/// puts anything into it.
#[test]
fn value_origins_are_named_in_toml_syntax() {
    let outcome = |global: &str, workspace: &str| -> Vec<(String, ConfigLayer)> {
        let layers = ConfigLayers::new().with_global(global).unwrap().with_workspace(workspace).unwrap();
        let merged = layers.merge(|_| None).unwrap();
        merged.entries().map(|entry| (entry.key, entry.layer)).collect()
    };
    let names = outcome("\"a b\" = 1\n\"\" = 2\na_b-9 = 3\n\"é\" = 4\n\"a.b\".c = 5", "");
    let names: Vec<_> = names.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["\"\"", "\"a b\"", "\"a.b\".c", "a_b-9", "\"é\""]);
    assert_eq!(outcome("", ""), []);
    let of = |name: &str, layer| vec![(name.to_owned(), layer)];
    assert_eq!(outcome("[x]", ""), of("x", ConfigLayer::Global));
    assert_eq!(outcome("[x]", "[x]"), of("x", ConfigLayer::Workspace));
    assert_eq!(outcome("[x]", "[x]\na = 1"), of("x.a", ConfigLayer::Workspace));
    assert_eq!(outcome("[x]\na = 1", "[x]"), of("x.a", ConfigLayer::Global));
}

/// An error names the source of the configuration, the line or the key, and what is wrong.
#[test]
fn errors_name_the_source_and_the_line() {
    let global = |text: &str| ConfigLayers::new().with_global_from("/etc/chat.toml", text);
    for (text, expected) in [
        ("a = ", "/etc/chat.toml, line 1: invalid TOML: string values must be quoted"),
        ("a = 1\nb c", "/etc/chat.toml, line 2: invalid TOML: key with no value, expected `=`"),
        ("a = 1\n\na = 2", "/etc/chat.toml, line 3: invalid TOML: duplicate key"),
    ] {
        let error = global(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let host = || global("[a]\nb = 1").unwrap().with_protected("a.b").unwrap();
    for (text, expected) in [
        ("a.b = 2", "own.toml: `a.b` may be set only in the host's configuration; remove it"),
        ("a = 2", "own.toml: `a` would replace a table in which only the host may set values; remove it"),
        ("a.c = 2", ""),
    ] {
        match host().with_workspace_from("own.toml", text).unwrap().merge(|_| None) {
            Err(error) => assert_eq!(error.to_string(), expected),
            Ok(_) => assert_eq!(expected, "", "{text}"),
        }
    }
    let layers = global("[a]\nb = 1").unwrap().with_variable("B", "a.b").unwrap();
    let error = layers.merge(|_| Some("x".to_owned())).unwrap_err();
    assert_eq!(error.to_string(), "environment variable B: invalid value for `a.b`, expected an integer");
}
