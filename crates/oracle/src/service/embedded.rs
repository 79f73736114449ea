//! What services register in this process.

use weir_core::ports::StoreError;

use super::{EmbeddedServices, Registered, Registration, ServiceName, ServiceSeen, Services};

impl Services for EmbeddedServices {
    async fn register(
        &mut self,
        service: &ServiceName,
        instance: &ServiceName,
        registration: &Registration,
    ) -> Result<Registered, StoreError> {
        Ok(self.with(service, |book, now| book.register(instance, registration, now)))
    }

    async fn deregister(&mut self, service: &ServiceName, instance: &ServiceName) -> Result<bool, StoreError> {
        Ok(self.with(service, |book, now| book.deregister(instance, now)))
    }

    async fn look(&mut self, service: &ServiceName) -> Result<Option<ServiceSeen>, StoreError> {
        Ok(self.with(service, |book, now| book.look(now)))
    }
}
