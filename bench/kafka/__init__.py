"""sharequeue beside Kafka's own share groups; needs Java 17 with Maven."""
