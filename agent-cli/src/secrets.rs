//! Secrets on the command line and in the environment. Errors quote arguments without the password that an address may have.

#[cfg(feature = "mcp")]
use agent_core::{Error, Result, WorkspaceId, async_trait};
#[cfg(feature = "mcp")]
use agent_runtime::secrets::{Secret, SecretName, SecretSource};
use clap::error::ContextValue;

/// Secrets that the configuration names: that of the name `git.hub` is the value of `AGENT_SECRET_GIT_HUB`.
#[cfg(feature = "mcp")]
#[derive(Debug)]
pub(crate) struct Variables;

#[cfg(feature = "mcp")]
#[async_trait]
impl SecretSource for Variables {
    async fn secret(&self, _: WorkspaceId, name: &SecretName) -> Result<Option<Secret>> {
        let variable = variable(name.as_str());
        let Some(value) = std::env::var_os(&variable) else {
            let text = format!("secret {name} has no value; set the environment variable {variable}");
            return Err(Error::not_found(text));
        };
        let wrong =
            |why: &str| Error::invalid(format!("secret {name}: the environment variable {variable} {why}"));
        let value = value.into_string().map_err(|_| wrong("is no text in UTF-8"))?;
        let (least, most) = (Secret::MIN_BYTES, Secret::MAX_BYTES);
        let fits = Secret::new(value).map_err(|_| wrong(&format!("must have {least} to {most} bytes")))?;
        Ok(Some(fits))
    }
}

/// Returns the environment variable that has the value of a secret.
#[cfg(feature = "mcp")]
fn variable(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let name: String = name.chars().map(letter).collect();
    format!("AGENT_SECRET_{name}")
}

/// Returns the text of an error in the command line, without secrets in the arguments that it quotes.
pub(crate) fn hidden(error: &clap::Error) -> String {
    let arguments = error.context().filter_map(|(_, value)| match value {
        ContextValue::String(text) => Some(text),
        _ => None,
    });
    arguments.fold(error.render().to_string(), |text, argument| {
        text.replace(argument.as_str(), &without_secrets(argument))
    })
}

/// Parts of names of options whose values are secret, also if they are misspelt.
const SECRET: [&str; 6] = ["pas", "pwd", "secret", "token", "key", "%"];

/// Kinds of stores whose places may have an `@`.
const PATHS: [&str; 5] = ["files", "sqlite", "s3", "gs", "az"];

/// Returns an argument without what stands before the host of an address, and without the values of options that are secret
/// or addresses.
fn without_secrets(argument: &str) -> String {
    let mut text = argument.to_owned();
    if let Some((scheme, rest)) = argument.split_once(':')
        // A password may have an `@` that should have been escaped.
        && let Some((user, host)) = rest.rsplit_once('@')
        && (user.starts_with('/') || user.contains(':') || !PATHS.contains(&scheme))
    {
        // Without a scheme it is the user that stands first.
        let scheme = if user.contains(['/', ':']) { format!("{scheme}://") } else { String::new() };
        text = format!("{scheme}…@{host}");
    }
    let Some((place, options)) = text.split_once('?') else { return text };
    let hide = |option| match str::split_once(option, '=') {
        Some((name, value)) if value.contains("%40") || SECRET.iter().any(|part| name.contains(part)) => {
            format!("{name}=…")
        }
        _ => option.to_owned(),
    };
    let options: Vec<_> = options.split('&').map(hide).collect();
    format!("{place}?{}", options.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_quoted() {
        for (argument, shown) in [
            ("sqlite:./notes.db?cache=3", "sqlite:./notes.db?cache=3"),
            ("postgres://db/x", "postgres://db/x"),
            ("postgres://alice:hunter2@db/x?a=b", "postgres://…@db/x?a=b"),
            ("postgres://alice:hunt@er2@db/x", "postgres://…@db/x"),
            ("postgres:alice:hunter2@db/x", "postgres://…@db/x"),
            ("alice:hunter2@db/x", "…@db/x"),
            ("alice:hunt:er2@db:5432/x?a=b", "alice://…@db:5432/x?a=b"),
            ("alice:hunter2@db:5432/x", "…@db:5432/x"),
            ("sqlite:a@b.db?cache=3", "sqlite:a@b.db?cache=3"),
            ("postgres://db/x?password=hunter2&a=b", "postgres://db/x?password=…&a=b"),
            ("postgres://db/x?p%61ssword=hunter2", "postgres://db/x?p%61ssword=…"),
            ("postgres://db/x?pasword=hunter2", "postgres://db/x?pasword=…"),
            ("postgres://db/x?listen=postgres://a:hunter2@direct/x", "postgres://…@direct/x"),
            (
                "postgres://db/x?listen=postgres%3A%2F%2Fa%3Ahunter2%40direct&a=b",
                "postgres://db/x?listen=…&a=b",
            ),
            ("s3://bucket?secret_access_key=hunter2", "s3://bucket?secret_access_key=…"),
        ] {
            assert_eq!(without_secrets(argument), shown);
        }
    }
}
