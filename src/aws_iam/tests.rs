use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// 2026-11-20T09:00:00Z.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_165_200)
}

fn signer(expiry: Option<SystemTime>) -> Signer {
    let (id, secret) = ("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
    let credentials = Credentials::new(id, secret, Some("session/token+=".to_owned()), expiry, "test");
    Signer { region: "eu-west-1".to_owned(), credentials: Arc::new(ArcSwap::from_pointee(credentials)) }
}

/// The parts of a query, in order: what they are is told, but not how they are arranged.
fn parts(url: &str) -> (String, Vec<String>) {
    let (path, query) = url.split_once('?').unwrap();
    (path.to_owned(), sorted(query))
}

fn sorted(query: &str) -> Vec<String> {
    let mut parts: Vec<String> = query.split('&').map(str::to_owned).collect();
    parts.sort_unstable();
    parts
}

fn signed(service: &str, own: &[&str], signature: &str) -> Vec<String> {
    sorted(&format!(
        "{}&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Date=20261120T090000Z&X-Amz-Expires=900&X-Amz-Security-Token=session%2Ftoken%2B%3D\
         &X-Amz-SignedHeaders=host&X-Amz-Credential=AKIDEXAMPLE%2F20261120%2Feu-west-1%2F{service}%2Faws4_request\
         &X-Amz-Signature={signature}",
        own.join("&")
    ))
}

/// The signature is what Amazon's own aws-msk-iam-sasl-signer-python 1.0.2 gives for these credentials at this time.
#[test]
fn a_token_of_msk_is_what_amazons_signer_gives() {
    let token = MskTokens(signer(None)).at(now()).unwrap();
    assert_eq!(token.expires_ms, 1_795_166_100_000);
    let url = String::from_utf8(URL_SAFE_NO_PAD.decode(&token.value).unwrap()).unwrap();
    let (path, parts) = parts(&url);
    assert_eq!(path, "https://kafka.eu-west-1.amazonaws.com/");
    let own = ["Action=kafka-cluster%3AConnect", concat!("User-Agent=weir%2F", env!("CARGO_PKG_VERSION"))];
    let signature = "d0227f0d01a66b26a693cdbfc2b86d37950a98ef780c6971b01497e7d7267a4b";
    assert_eq!(parts, signed("kafka-cluster", &own, signature));
}

/// The signatures are those of botocore's SigV4QueryAuth, which AWS' documentation takes for this.
#[test]
fn passwords_of_caches_are_what_amazons_library_gives() {
    use AwsCache::{ElastiCache, ElastiCacheServerless, MemoryDb};
    for (cache, service, signature) in [
        (ElastiCache, "elasticache", "c159097853084cc99a2ca8d7410b9ddc01c5931ce8a914e70233dce8f8a5e026"),
        (ElastiCacheServerless, "elasticache", "b7ce1e86e1c75b635bf09506fd53424be7a2a9d22c6f48b76f87b9245857a7e1"),
        (MemoryDb, "memorydb", "1497656686a8e82d454b7e7cf185f610a115f3c617ec3ad09e7dc52519e0c664"),
    ] {
        let password = CachePasswords::new(signer(None), cache, "caps", "weir").at(now()).unwrap();
        let (path, parts) = parts(&password);
        assert_eq!(path, "caps/", "{cache:?}");
        let kind = (cache == ElastiCacheServerless).then_some("ResourceType=ServerlessCache");
        let own: Vec<&str> = ["Action=connect", "User=weir"].into_iter().chain(kind).collect();
        assert_eq!(parts, signed(service, &own, signature), "{cache:?}");
    }
}

#[test]
fn a_token_ends_with_the_credentials_and_credentials_that_have_ended_sign_nothing() {
    let tokens = MskTokens(signer(Some(now() + Duration::from_secs(60))));
    assert_eq!(tokens.at(now()).unwrap().expires_ms, 1_795_165_260_000);
    let error = tokens.at(now() + Duration::from_secs(60)).unwrap_err();
    assert!(error.contains("have ended"), "{error}");
}

#[test]
fn credentials_are_fetched_again_at_half_of_what_is_left() {
    let after = |seconds: u64| now() + Duration::from_secs(seconds);
    let cases = [(None, 600), (Some(after(3_600)), 600), (Some(after(60)), 30), (Some(after(1)), 5), (Some(now()), 5)];
    for (expiry, expected) in cases {
        assert_eq!(PACE.pause(expiry, now()), Duration::from_secs(expected), "{expiry:?}");
    }
}

/// Gives credentials that are numbered and have ended, so that others are fetched at once. Of three fetches one is refused, and one gets
/// no answer.
#[derive(Debug, Default)]
struct Numbered(AtomicU64);

impl ProvideCredentials for Numbered {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        let ended = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        match number % 3 {
            0 => {
                let credentials = Credentials::new(format!("AKID{number}"), "secret", None, Some(ended), "test");
                future::ProvideCredentials::ready(Ok(credentials))
            }
            1 => future::ProvideCredentials::ready(Err(CredentialsError::not_loaded("not now"))),
            _ => future::ProvideCredentials::new(std::future::pending()),
        }
    }
}

/// Fetches without a pause.
const FAST: Pace =
    Pace { answer: Duration::from_millis(50), least: Duration::from_millis(1), most: Duration::from_millis(1) };

#[tokio::test]
async fn others_follow_credentials_that_end_also_after_a_refusal_and_after_no_answer() {
    let provider = SharedCredentialsProvider::new(Numbered::default());
    let signer = Signer::with(provider, "eu-west-1", FAST).await.unwrap();
    let key = || signer.credentials.load().access_key_id().to_owned();
    let start = std::time::Instant::now();
    while ["AKID0", "AKID3"].contains(&&*key()) {
        assert!(start.elapsed() < Duration::from_secs(60), "{}", key());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // What has ended signs nothing, whatever was given last.
    let error = MskTokens(signer).token().unwrap_err();
    assert!(error.contains("have ended"), "{error}");
}

#[tokio::test]
async fn who_gives_no_credentials_in_time_ends_the_start_with_the_reason() {
    for (before, expected) in [(1, "the credential provider was not enabled: not now"), (2, "no credentials within")] {
        let provider = SharedCredentialsProvider::new(Numbered(AtomicU64::new(before)));
        let error = Signer::with(provider, "eu-west-1", FAST).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn neither_keys_nor_tokens_are_shown() {
    let password = CachePasswords::new(signer(None), AwsCache::MemoryDb, "caps", "weir").at(now()).unwrap();
    assert!(password.contains("X-Amz-Signature"));
    let tokens = MskTokens(signer(None));
    let shown = format!("{tokens:?} {:?}", tokens.at(now()).unwrap());
    assert!(shown.contains("eu-west-1") && !shown.contains("AKID") && !shown.contains("session"), "{shown}");
}
