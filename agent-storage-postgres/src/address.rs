//! Addresses: the servers that one names, and the options of each.

use std::iter;
use std::net::IpAddr;
use std::str::FromStr;

use agent_core::store::percent_decode;
use agent_core::{Error, Result};
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

/// Options of an address that the driver understands.
const OF_DRIVER: [&str; 10] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
];

/// Values of the option `sslmode`.
const SSL_MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

/// Servers of one store, in the order in which they are tried.
#[derive(Clone)]
pub(crate) struct Servers {
    first: PgConnectOptions,
    others: Vec<PgConnectOptions>,
}

/// Options of an address that are not those of the driver: names and values.
pub(crate) type Own = Vec<(String, String)>;

impl Servers {
    /// One server. Logs no statements, whatever the options say.
    pub(crate) fn one(options: PgConnectOptions) -> Self {
        Self { first: own(options), others: Vec::new() }
    }

    /// Reads an address.
    pub(crate) fn from_url(url: &str) -> Result<(Self, Own)> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        if !matches!(scheme, "postgres" | "postgresql") {
            let text = "this is no address of a PostgreSQL store; write postgres://USER@HOST/DATABASE";
            return Err(Error::invalid(text));
        }
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (mut own, mut of_driver) = (Vec::new(), Vec::new());
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let decoded = percent_decode(name)?;
            if OF_DRIVER.contains(&&*decoded) {
                check(&decoded, &percent_decode(value)?)?;
                of_driver.push((decoded, value.replace("%2C", ",").replace("%2c", ",")));
            } else {
                own.push((decoded, percent_decode(value)?));
            }
        }
        let (authority, database) = place.split_at(place.find('/').unwrap_or(place.len()));
        let (user, hosts) = authority.rsplit_once('@').map_or(("", authority), |(user, hosts)| (user, hosts));
        let user = if user.is_empty() { String::new() } else { format!("{user}@") };
        let count = |list: &str| list.split(',').count();
        let of =
            |wanted: &str| of_driver.iter().find(|(name, _)| name == wanted).map_or("", |(_, value)| value);
        for host in hosts.split(',') {
            // The colons in the brackets of IPv6 come before.
            let port = host.rsplit_once(']').map_or(host, |(_, port)| port).rsplit_once(':');
            if let Some((_, port)) = port.filter(|(_, port)| !port.is_empty()) {
                check("port", port)?;
            }
        }
        let lists = [hosts, of("host"), of("port")];
        let most = lists.iter().map(|list| count(list)).max().unwrap_or(1);
        if lists.iter().any(|list| ![1, most].contains(&count(list))) {
            let text = "an address of several servers names a host, and a port, for each or one for all";
            return Err(Error::invalid(text));
        }
        let at = |n: usize, list: &str| list.split(',').cycle().nth(n).unwrap_or_default().to_owned();
        let mut servers = (0..most).map(|n| {
            let option = |(name, value): &(String, String)| {
                let value = if name == "host" || name == "port" { at(n, value) } else { value.clone() };
                format!("{name}={value}")
            };
            let query = of_driver.iter().map(option).collect::<Vec<_>>().join("&");
            let options = PgConnectOptions::from_str(&format!("{scheme}://{user}{}{database}?{query}", at(n, hosts)));
            let options = options.map_err(|_| {
                Error::invalid(
                    "the address of the PostgreSQL store cannot be read; write postgres://USER@HOST:PORT/DATABASE",
                )
            })?;
            Ok(self::own(if of("sslmode").is_empty() { encrypted(options) } else { options }))
        });
        let first = servers.next().unwrap_or_else(|| Err(Error::invalid("the address names no server")))?;
        let others = servers.collect::<Result<_>>()?;
        Ok((Self { first, others }, own))
    }

    /// Returns the options of the servers, from the server `start` on.
    pub(crate) fn from(&self, start: usize) -> impl Iterator<Item = (usize, &PgConnectOptions)> {
        let count = self.others.len() + 1;
        self.all().enumerate().cycle().skip(start % count).take(count)
    }

    /// Returns whether one of several has to be found.
    pub(crate) const fn are_several(&self) -> bool {
        !self.others.is_empty()
    }

    /// Returns the name of the database, which is the same on all.
    pub(crate) fn database(&self) -> &str {
        self.first.get_database().unwrap_or_else(|| self.first.get_username())
    }

    /// Names the servers, or the folders of their sockets, without user and password.
    pub(crate) fn hosts(&self) -> String {
        let host = |options: &PgConnectOptions| match options.get_socket() {
            Some(folder) => format!("{}:{}", folder.display(), options.get_port()),
            None if options.get_host().contains(':') => {
                format!("[{}]:{}", options.get_host(), options.get_port())
            }
            None => format!("{}:{}", options.get_host(), options.get_port()),
        };
        self.all().map(host).collect::<Vec<_>>().join(",")
    }

    fn all(&self) -> impl Iterator<Item = &PgConnectOptions> + Clone {
        iter::once(&self.first).chain(&self.others)
    }
}

/// Refuses values of the driver's options that it would refuse without a name.
fn check(name: &str, value: &str) -> Result<()> {
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    let supported = match name {
        "sslmode" if !SSL_MODES.contains(&&*value.to_ascii_lowercase()) => SSL_MODES.join(", "),
        "port" if !value.split(',').all(is_port) => "1 to 65535".to_owned(),
        _ => return Ok(()),
    };
    // Without a quotation: what stands in the place of a port may be a password.
    Err(Error::invalid(format!(
        "invalid value for option {name} in the address of the PostgreSQL store; supported: {supported}"
    )))
}

/// Returns options as the store uses them.
fn own(options: PgConnectOptions) -> PgConnectOptions {
    // An address has the brackets of IPv6; the system does not take them.
    let host = options.get_host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).map(str::to_owned);
    let options = match bare {
        Some(host) => options.host(&host),
        None => options,
    };
    options.disable_statement_logging().extra_float_digits(None)
}

/// Returns options that do not fall back to a connection without encryption, which is the driver's default, if the server is
/// another machine.
fn encrypted(options: PgConnectOptions) -> PgConnectOptions {
    let host = options.get_host().trim_matches(['[', ']']);
    let is_loopback =
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    let is_local = is_loopback || host.starts_with('/') || options.get_socket().is_some();
    match options.get_ssl_mode() {
        PgSslMode::Disable | PgSslMode::Allow | PgSslMode::Prefer if !is_local => {
            options.ssl_mode(PgSslMode::Require)
        }
        _ => options,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(url: &str) -> Vec<PgConnectOptions> {
        Servers::from_url(url).unwrap().0.all().cloned().collect()
    }

    #[test]
    fn another_machine_is_not_talked_to_in_clear() {
        let is_encrypted = |url: &str| {
            let is_clear = |mode| matches!(mode, PgSslMode::Disable | PgSslMode::Allow | PgSslMode::Prefer);
            !servers(url).iter().any(|options| is_clear(options.get_ssl_mode()))
        };
        for url in [
            "postgres://a@db.example/x",
            "postgres://a@10.0.0.7/x?schema=prod",
            "postgres://a@[fd00::7]/x",
            "postgres://a@db.example,10.0.0.7/x",
        ] {
            assert!(is_encrypted(url), "{url}");
        }
        assert!(is_encrypted("postgres://a@localhost/x?sslmode=verify-full"));
        // Whoever wants it says so.
        assert!(!is_encrypted("postgres://a@db.example/x?sslmode=disable"));
        for url in [
            "postgres://a@localhost/x",
            "postgres://a@127.0.0.1/x",
            "postgres://a@[::1]/x",
            "postgres:///x?host=/run",
        ] {
            assert!(!is_encrypted(url), "{url}");
        }
    }

    #[test]
    fn wrong_options_of_the_driver_are_named_with_their_values() {
        for (url, named) in [
            ("postgres://a:hunter2@h/x?sslmode=bogus", "option sslmode"),
            ("postgres://a:hunter2@h/x?sslmode=", "verify-full"),
            ("postgres://a:hunter2@h:70000/x", "option port"),
            ("postgres://a:hunter2@h1:1,h2:0/x", "1 to 65535"),
            ("postgres://a:hunter2@[::1]:70000/x", "option port"),
            ("postgres://a:hunter2@h/x?port=70000", "option port"),
            ("postgres://a:hunter2@h1,h2/x?port=1,2%2C3x", "option port"),
            // A password that should have been escaped.
            ("postgres://a:hunt@er2:hunter2/x", "option port"),
        ] {
            let error = Servers::from_url(url).map(drop).unwrap_err().to_string();
            assert!(error.contains(named) && !error.contains("hunter2"), "{url}: {error}");
        }
        for url in ["postgres://h:/x", "postgres://[::1]/x", "postgres://h:65535/x?sslmode=verify-ca"] {
            Servers::from_url(url).unwrap();
        }
        assert!(
            Servers::from_url("a:hunter2@h/x").is_err_and(|error| !error.to_string().contains("hunter2"))
        );
    }

    #[test]
    fn an_address_names_several_servers() {
        let hosts = |url: &str| Servers::from_url(url).unwrap().0.hosts();
        assert_eq!(hosts("postgres://a:b@h1,h2:5433/x"), "h1:5432,h2:5433");
        assert_eq!(hosts("postgres://h1,h2/x?port=6000"), "h1:6000,h2:6000");
        assert_eq!(hosts("postgres:///x?host=h1,h2&port=1,2"), "h1:1,h2:2");
        assert_eq!(hosts("postgres://a@ignored/x?host=h1%2Ch2"), "h1:5432,h2:5432");
        assert_eq!(hosts("postgres://[::1]:7,[::2]/x"), "[::1]:7,[::2]:5432");
        assert_eq!(servers("postgres://[::1]:7/x")[0].get_host(), "::1");
        for options in servers("postgres://a:b%2Cc%40@h1,h2/x?application_name=one,two") {
            assert_eq!((options.get_username(), options.get_database()), ("a", Some("x")));
            assert_eq!(options.get_application_name(), Some("one,two"));
        }
        assert!(Servers::from_url("postgres://h1,h2,h3/x?port=1,2").is_err());
        let (servers, _) = Servers::from_url("postgres://h1,h2,h3/x").unwrap();
        let from: Vec<_> = servers.from(4).map(|(n, options)| (n, options.get_host().to_owned())).collect();
        assert_eq!(from, [(1, "h2".to_owned()), (2, "h3".to_owned()), (0, "h1".to_owned())]);
    }
}
