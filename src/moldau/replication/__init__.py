"""Partitions on top of logs: leaders and followers, high watermark, ISR, log directories."""
