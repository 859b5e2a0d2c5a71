"""Help for the tests of services that use Smena."""
