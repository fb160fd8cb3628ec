"""The providers' own SDKs as judges of signature verification, and deliveries signed without our package."""
