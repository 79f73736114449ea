//! The port of services that ask before they work.

use std::future::Future;

use weir_core::ports::{Share, StoreError};

use super::{Registered, Registration, ServiceName, ServiceSeen, ServiceShares};

/// Where services register, and instances of weir share what they have registered.
pub trait Services: Share<ServiceShares> {
    /// Registers or renews an instance of a service. Safe to call again. After an error it may have been done or not.
    fn register(
        &mut self,
        service: &ServiceName,
        instance: &ServiceName,
        registration: &Registration,
    ) -> impl Future<Output = Result<Registered, StoreError>> + Send;

    /// Removes an instance of a service; gives whether it was registered. Safe to call again. After an error it may have been done or not.
    fn deregister(
        &mut self,
        service: &ServiceName,
        instance: &ServiceName,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// How a service stands; `None` where none of its instances is registered. Changes nothing.
    fn look(&mut self, service: &ServiceName) -> impl Future<Output = Result<Option<ServiceSeen>, StoreError>> + Send;
}
