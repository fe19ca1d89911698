//! Kinds of servers, and the client settings of each.

use agent_core::text::quoted;
use agent_core::{Error, Result};
use object_store::aws::AmazonS3ConfigKey;
#[cfg(feature = "azure")]
use object_store::azure::AzureConfigKey;
#[cfg(feature = "gcs")]
use object_store::gcp::GoogleConfigKey;

/// Kind of server, by the protocol that it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    S3,
    Gcs,
    Azure,
}

impl Dialect {
    pub(crate) const ALL: [Self; 3] = [Self::S3, Self::Gcs, Self::Azure];

    /// Returns the scheme of the addresses.
    pub(crate) const fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gcs => "gs",
            Self::Azure => "az",
        }
    }

    /// Returns the syntax of the addresses, for people.
    pub(crate) const fn syntax(self) -> &'static str {
        match self {
            Self::S3 => "s3://BUCKET/PREFIX",
            Self::Gcs => "gs://BUCKET/PREFIX",
            Self::Azure => "az://CONTAINER/PREFIX",
        }
    }

    /// Returns the name that the server's documentation has for a bucket.
    pub(crate) const fn bucket(self) -> &'static str {
        match self {
            Self::S3 | Self::Gcs => "bucket",
            Self::Azure => "container",
        }
    }

    /// Returns the names of the headers that the server must obey: of a creation, and of a replacement.
    pub(crate) const fn preconditions(self) -> [&'static str; 2] {
        match self {
            Self::S3 | Self::Azure => ["If-None-Match", "If-Match"],
            Self::Gcs => ["x-goog-if-generation-match: 0", "x-goog-if-generation-match"],
        }
    }

    /// Returns the text for a program that was built without this kind; `None` if it was built with it.
    pub(crate) fn missing(self) -> Option<String> {
        let (name, feature, built) = match self {
            Self::S3 => return None,
            Self::Gcs => ("Google Cloud Storage", "gcs", cfg!(feature = "gcs")),
            Self::Azure => ("Azure Blob Storage", "azure", cfg!(feature = "azure")),
        };
        (!built).then(|| {
            format!(
                "this program was built without {name}; build it with the feature `{feature}` of the crate `agent`"
            )
        })
    }

    /// Returns whether `object_store` has an option of this name, other than the name of the bucket.
    fn has_option(self, name: &str) -> bool {
        match self {
            Self::S3 => name.parse().is_ok_and(|key| !matches!(key, AmazonS3ConfigKey::Bucket)),
            #[cfg(feature = "gcs")]
            Self::Gcs => name.parse().is_ok_and(|key| !matches!(key, GoogleConfigKey::Bucket)),
            #[cfg(feature = "azure")]
            Self::Azure => name.parse().is_ok_and(|key| !matches!(key, AzureConfigKey::ContainerName)),
            #[cfg(not(all(feature = "gcs", feature = "azure")))]
            _ => false,
        }
    }

    /// Checks the name of an option of the client.
    pub(crate) fn check_option(self, name: &str) -> Result<()> {
        if self.has_option(name) {
            return Ok(());
        }
        let (client, options) = match self {
            Self::S3 => (
                "AmazonS3",
                "region, endpoint, access_key_id, secret_access_key, session_token, allow_http, \
                 virtual_hosted_style_request",
            ),
            Self::Gcs => (
                "GoogleCloudStorage",
                "service_account, application_credentials, bearer_token, base_url, allow_http",
            ),
            Self::Azure => (
                "MicrosoftAzure",
                "account_name, access_key, sas_token, client_id, client_secret, tenant_id, endpoint, allow_http",
            ),
        };
        Err(Error::invalid(format!(
            "unknown option {}; supported: deadline_ms, attempt_ms, concurrency, create, credentials, index, and those of \
             object_store's {client} ({options}, ...)",
            quoted(name)
        )))
    }
}

/// Where credentials may come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// The options and the environment. It is an error if there are none, and known at once.
    #[default]
    Environment,
    /// These, and if they have none the metadata service of the machine that the program runs on.
    Instance,
}
