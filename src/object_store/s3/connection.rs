//! How a store is reached: a client, and the files that it was made from.

use std::{env, path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use aws_config::{
    BehaviorVersion, SdkConfig, environment::EnvironmentVariableRegionProvider, meta::region::RegionProviderChain,
    retry::RetryConfig, timeout::TimeoutConfig,
};
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, error::CredentialsError, future};
use aws_sdk_s3::{
    Client,
    config::{Builder, Region, RequestChecksumCalculation, ResponseChecksumValidation, SharedHttpClient},
    types::RequestPayer,
};
use aws_smithy_http_client::{
    Builder as HttpClient,
    tls::{Provider, TlsContext, TrustStore, rustls_provider::CryptoMode},
};
use aws_types::service_config::ServiceConfigKey;

use super::S3Options;
use crate::{
    authorities::Authorities,
    object_store::{CONNECT_TIMEOUT, FIRST_BYTE_TIMEOUT, MAX_ATTEMPTS, ObjectProblem, READ_TIMEOUT, file::FileVersion},
};

/// The region of a store that is not AWS and was given none; such stores take any.
const ANY_REGION: &str = "us-east-1";
/// The files of profiles: the variable that names one, and where it is in the home folder otherwise.
const PROFILES: [(&str, &str); 2] =
    [("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"), ("AWS_CONFIG_FILE", ".aws/config")];

/// A client. It is replaced when one of the files that it was made from changes.
#[derive(Debug)]
pub(super) struct Connection {
    options: S3Options,
    made: ArcSwap<Made>,
}

#[derive(Debug)]
struct Made {
    client: Client,
    /// Where the store is, if it is not AWS.
    address: Option<String>,
    authorities: Option<Authorities>,
    profiles: [Option<FileVersion>; 2],
}

impl Connection {
    pub(super) async fn new(options: &S3Options) -> Self {
        let made = Made::new(options, options.authorities.clone(), profiles(options)).await;
        Self { options: options.clone(), made: ArcSwap::from_pointee(made) }
    }

    pub(super) fn client(&self) -> Client {
        self.made.load().client.clone()
    }

    /// Whether the store can be asked with this region and address. The SDK reports an address without a scheme as a store that
    /// does not answer. It does the same with a region that no host name can contain, or panics when it puts that into a header.
    pub(super) fn can_be_asked(&self) -> Result<(), ObjectProblem> {
        let made = self.made.load();
        let is_wrong = |region: &Region| !region.as_ref().bytes().all(|sign| sign.is_ascii_graphic());
        if made.client.config().region().is_some_and(is_wrong) {
            return Err(ObjectProblem::NoRegion);
        }
        match made.address.as_deref().filter(|address| !is_url(address)) {
            Some(address) => Err(ObjectProblem::Address(address.trim_end_matches('/').to_owned())),
            None => Ok(()),
        }
    }

    /// Who pays for requests, if it is who asks.
    pub(super) fn payer(&self) -> Option<RequestPayer> {
        self.options.requester_pays.then_some(RequestPayer::Requester)
    }

    /// A client with the certificate authorities and profiles that are in their files now. The SDK reads a profile once: it would
    /// show old keys for ever.
    pub(super) async fn fresh_client(&self) -> Client {
        let made = self.made.load_full();
        let (replaced, profiles) = (made.authorities.as_ref().and_then(Authorities::replaced), profiles(&self.options));
        // A file that is being replaced may be missing for a moment.
        let is_gone = |(was, is): (&Option<FileVersion>, &Option<FileVersion>)| was.is_some() && is.is_none();
        let is_being_replaced = made.profiles.iter().zip(&profiles).any(is_gone);
        if replaced.is_none() && (profiles == made.profiles || is_being_replaced) {
            return made.client.clone();
        }
        if profiles != made.profiles {
            tracing::info!("the files of AWS profiles have changed: S3 is asked with the keys that are in them now");
        }
        let authorities = replaced.or_else(|| made.authorities.clone());
        self.made.store(Arc::new(Made::new(&self.options, authorities, profiles).await));
        self.client()
    }
}

impl Made {
    async fn new(options: &S3Options, authorities: Option<Authorities>, profiles: [Option<FileVersion>; 2]) -> Self {
        let region = RegionProviderChain::first_try(options.region.clone().map(Region::new));
        let region = match options.endpoint {
            // The whole chain would ask a cloud's metadata service, which is not there beside a store of one's own.
            Some(_) => region.or_else(EnvironmentVariableRegionProvider::new()).or_else(ANY_REGION),
            None => region.or_default_provider(),
        };
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(FIRST_BYTE_TIMEOUT)
            .operation_timeout(READ_TIMEOUT)
            .build();
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .region(region)
            .retry_config(RetryConfig::standard().with_max_attempts(MAX_ATTEMPTS))
            .timeout_config(timeouts);
        if let Some(credentials) = &options.credentials {
            loader = loader.credentials_provider(credentials.clone());
        }
        let loaded = loader.load().await;
        let mut config = Builder::from(&loaded);
        let provider =
            loaded.credentials_provider().map(|found| SharedCredentialsProvider::new(CheckedCredentials(found)));
        config.set_credentials_provider(provider);
        let address = endpoint(options, &loaded);
        config.set_endpoint_url(address.clone());
        if let Some(authorities) = &authorities {
            config.set_http_client(Some(trusting(authorities)));
        }
        let config = config
            .force_path_style(options.force_path_style)
            // What weir reads is checked by SHA-256, and many stores do not know the SDK's own checksums.
            .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
            .build();
        Self { client: Client::from_conf(config), address, authorities, profiles }
    }
}

/// Refuses credentials that contain more than keys, such as a line's end from a file: the SDK puts the key's id into a header, and panics if
/// that is invalid.
#[derive(Debug)]
struct CheckedCredentials(SharedCredentialsProvider);

impl ProvideCredentials for CheckedCredentials {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            let found = self.0.provide_credentials().await?;
            let has_more = |key: &str| key.trim() != key || key.contains(char::is_control);
            let keys = [found.access_key_id(), found.secret_access_key()];
            if keys.into_iter().chain(found.session_token()).any(has_more) {
                let reason = "the key's id, its secret or the session token has a line's end, or a blank around it";
                return Err(CredentialsError::invalid_configuration(reason));
            }
            Ok(found)
        })
    }
}

/// Where a store is that is not AWS, with a slash at the end: the SDK puts a bucket right behind the URL's path. By the settings, or as
/// the SDK finds it: in its variables, or in a profile.
fn endpoint(options: &S3Options, loaded: &SdkConfig) -> Option<String> {
    let found = || {
        let key = ServiceConfigKey::builder().service_id("S3").env("AWS_ENDPOINT_URL").profile("endpoint_url").build();
        let of_s3 = loaded.service_config().and_then(|services| services.load_config(key.ok()?));
        of_s3.or_else(|| loaded.endpoint_url().map(str::to_owned)).filter(|url| !url.is_empty())
    };
    let given = options.endpoint.clone().or_else(found)?;
    Some(format!("{}/", given.trim_end_matches('/')))
}

/// A variable and a profile may have any text, and so may the command line.
fn is_url(address: &str) -> bool {
    let lower = address.to_ascii_lowercase();
    let rest = lower.strip_prefix("http://").or_else(|| lower.strip_prefix("https://"));
    let is_wrong = |sign: char| "?#".contains(sign) || sign.is_whitespace() || sign.is_control();
    rest.is_some_and(|rest| !rest.starts_with(['/', ':']) && !rest.contains(is_wrong))
}

/// The state of the files that the default chain reads keys from, where it is asked.
fn profiles(options: &S3Options) -> [Option<FileVersion>; 2] {
    PROFILES.map(|(variable, place)| match options.credentials {
        Some(_) => None,
        None => {
            let named = env::var_os(variable).map(PathBuf::from);
            FileVersion::at(&named.or_else(|| Some(env::home_dir()?.join(place)))?)
        }
    })
}

/// A client that trusts these authorities and no others. Only for the store itself: where credentials come from, the
/// system's authorities hold.
fn trusting(authorities: &Authorities) -> SharedHttpClient {
    let store = TrustStore::empty().with_pem_certificate(authorities.pem.as_slice());
    let context = TlsContext::builder().with_trust_store(store).build().expect("a context of checked certificates");
    HttpClient::new().tls_provider(Provider::Rustls(CryptoMode::AwsLc)).tls_context(context).build_https()
}
