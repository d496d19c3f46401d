//! Nothing: the tests are programs of their own.
