//! Tokens instead of passwords (SASL/OAUTHBEARER), and how clients that use them are created.
//!
//! librdkafka asks for a token by an event, which is served when the client is polled. A client that asks one question is never
//! polled, so each is given a token when it is made. One that lives for longer is asked for the next after four fifths of a token's
//! life, and every 10 s where there is none; the one before is shown until it ends.

use std::{error::Error, fmt, sync::Arc};

use rdkafka::{ClientConfig, client::OAuthToken, config::FromClientConfigAndContext};

use super::{
    client::{KafkaOptions, not_made},
    context::{KafkaClient, KafkaContext},
    native,
};

/// What lets a client in for a while; the value is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    pub value: String,
    /// Whose it is, as logs name it.
    pub principal: String,
    /// When it ends, in milliseconds since 1970.
    pub expires_ms: i64,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token {{ principal: {:?}, expires_ms: {} }}", self.principal, self.expires_ms)
    }
}

/// Who gives tokens. Asked by threads that must not wait: what has to be fetched is fetched before.
pub trait Tokens: fmt::Debug + Send + Sync {
    /// A token that is valid now.
    ///
    /// # Errors
    /// Why there is none, without secrets.
    fn token(&self) -> Result<Token, String>;
}

/// No token, for a client that connects to nothing.
#[derive(Debug)]
pub struct NoToken;

impl Tokens for NoToken {
    fn token(&self) -> Result<Token, String> {
        Err("a client that connects to nothing needs no token".to_owned())
    }
}

pub(super) type TokenSource = Option<Arc<dyn Tokens>>;

/// The settings of a client, which has no others yet, so that it shows tokens where there are some.
pub(super) fn settings(source: &TokenSource) -> ClientConfig {
    let mut config = ClientConfig::new();
    if source.is_some() {
        config.set("security.protocol", "SASL_SSL").set("sasl.mechanism", "OAUTHBEARER");
    }
    config
}

/// The answer to librdkafka's question for the next token. Why there is none is told by the client's error, once a reason.
pub(super) fn next(source: &TokenSource) -> Result<OAuthToken, Box<dyn Error>> {
    let source = source.as_ref().ok_or(
        "weir has no tokens: set \"sasl.oauthbearer.method\" = \"oidc\" in [kafka.properties], kafka.aws_iam_region, or another \
         \"sasl.mechanism\"",
    )?;
    let token = source.token()?;
    Ok(OAuthToken { token: token.value, principal_name: token.principal, lifetime_ms: token.expires_ms })
}

/// Makes a client of these settings, which librdkafka knows by what `client_of` gives; one that shows tokens has its first. Where there is
/// none, the client is made all the same, and its error says why it is not let in.
///
/// # Errors
/// Why it cannot be made, without the values of its properties.
pub(super) fn make<T: FromClientConfigAndContext<KafkaContext>>(
    config: &ClientConfig,
    options: &KafkaOptions,
    client_of: fn(&T) -> &KafkaClient,
) -> Result<T, String> {
    let made: T = config.create_with_context(KafkaContext::of(options)).map_err(|error| not_made(&error))?;
    if let Some(source) = &options.tokens {
        native::show_token(client_of(&made), &source.token());
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_shown() {
        let token = Token { value: "secret".to_owned(), principal: "weir".to_owned(), expires_ms: 7 };
        let shown = format!("{token:?}");
        assert!(shown.contains("weir") && !shown.contains("secret"), "{shown}");
    }

    #[test]
    fn a_client_shows_tokens_over_tls_where_there_are_some() {
        let source: TokenSource = Some(Arc::new(NoToken));
        assert_eq!(settings(&source).get("security.protocol"), Some("SASL_SSL"));
        assert_eq!(settings(&source).get("sasl.mechanism"), Some("OAUTHBEARER"));
        assert_eq!(settings(&None).get("sasl.mechanism"), None);
    }
}
