//! Row of a secret of a workspace: its name and its versions, and each value, sealed one by one.

use agent_core::json::RawJson;
use agent_core::{Error, Result, Timestamp, WorkspaceId};
use agent_workspace::secrets::{Secret, SecretName};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::cipher::{Cipher, Purpose};

/// Number of the stored form, in each row and in what each is bound to.
const FORMAT: &str = "1";

/// Version of a secret, without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Version {
    pub(crate) version: u64,
    pub(crate) set_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<Timestamp>,
}

/// What is sealed of a secret beside its values.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) name: SecretName,
    /// Oldest first, as the values are.
    pub(crate) versions: Vec<Version>,
}

/// Row of a secret, opened up to its values: `<format>.<sealed head>.<sealed value>.<sealed value>…`.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) head: Head,
    /// Sealed values.
    pub(crate) values: Vec<String>,
}

/// Tenant and workspace to which the rows of secrets are bound.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) workspace: WorkspaceId,
}

impl Place<'_> {
    /// Returns the beginning of the names of the rows.
    pub(crate) fn prefix(self) -> String {
        format!("secret/{}/{}/", self.tenant, self.workspace)
    }

    /// Returns the name of the row that a secret has after so many removals.
    pub(crate) fn row(self, cipher: &Cipher, name: &SecretName, removals: u32) -> String {
        let (workspace, removals) = (self.workspace.to_string(), removals.to_be_bytes());
        let parts = ["secret name", self.tenant, &workspace, name.as_str()].map(str::as_bytes);
        let mac = cipher.mac(&[&parts[..], &[&removals]].concat());
        self.prefix() + &URL_SAFE_NO_PAD.encode(mac)
    }

    /// Returns the text of a row.
    pub(crate) fn seal(self, cipher: &Cipher, row: &str, head: &Head, values: &[String]) -> Result<String> {
        let workspace = self.workspace.to_string();
        let aad = [FORMAT, "secret head", self.tenant, &workspace, row].map(str::as_bytes);
        let head = cipher.seal(Purpose::Word, &aad, RawJson::of(head)?.get().as_bytes());
        let parts = [FORMAT.to_owned(), URL_SAFE_NO_PAD.encode(head)];
        Ok(parts.iter().chain(values).map(String::as_str).collect::<Vec<_>>().join("."))
    }

    /// Opens the text of a row up to its values.
    pub(crate) fn open(self, cipher: &Cipher, row: String, text: String) -> Result<Row> {
        let workspace = self.workspace.to_string();
        let aad = [FORMAT, "secret head", self.tenant, &workspace, &row].map(str::as_bytes);
        let mut parts = text.split('.');
        match parts.next() {
            Some(FORMAT) => {}
            Some(format) if format.parse::<u32>().is_ok() => {
                return Err(Error::unsupported(format!(
                    "row {row} has format {format}, and this version reads {FORMAT}; update the library"
                )));
            }
            _ => return Err(damaged(&row)),
        }
        let sealed = parts.next().and_then(|sealed| URL_SAFE_NO_PAD.decode(sealed).ok());
        let plain = sealed.and_then(|sealed| cipher.open(Purpose::Word, &aad, &sealed));
        let head =
            plain.and_then(|plain| RawJson::parse(str::from_utf8(&plain).ok()?).ok()?.to::<Head>().ok());
        let (head, values) =
            (head.ok_or_else(|| damaged(&row))?, parts.map(str::to_owned).collect::<Vec<_>>());
        if head.versions.len() == values.len() {
            Ok(Row { name: row, text, head, values })
        } else {
            Err(damaged(&row))
        }
    }

    pub(crate) fn seal_value(
        self,
        cipher: &Cipher,
        row: &str,
        name: &SecretName,
        version: u64,
        value: &Secret,
    ) -> String {
        let (workspace, version) = (self.workspace.to_string(), version.to_string());
        let aad = [FORMAT, "secret value", self.tenant, &workspace, row, name.as_str(), &version]
            .map(str::as_bytes);
        URL_SAFE_NO_PAD.encode(cipher.seal(Purpose::Content, &aad, value.expose().as_bytes()))
    }

    pub(crate) fn open_value(
        self,
        cipher: &Cipher,
        row: &str,
        name: &SecretName,
        version: u64,
        sealed: &str,
    ) -> Result<Secret> {
        let (workspace, number) = (self.workspace.to_string(), version.to_string());
        let aad =
            [FORMAT, "secret value", self.tenant, &workspace, row, name.as_str(), &number].map(str::as_bytes);
        let sealed = URL_SAFE_NO_PAD.decode(sealed).ok();
        let plain =
            sealed.and_then(|sealed| cipher.open(Purpose::Content, &aad, &sealed)).map(Zeroizing::new);
        let value = plain.as_ref().and_then(|plain| str::from_utf8(plain).ok());
        value.and_then(|value| Secret::new(value).ok()).ok_or_else(|| {
            Error::corrupt(format!(
                "version {version} of secret {name} of workspace {workspace} holds no value that was sealed for it; set a new version"
            ))
        })
    }
}

fn damaged(row: &str) -> Error {
    Error::corrupt(format!("row {row} holds no secret that was sealed for it; restore the row from a backup"))
}
