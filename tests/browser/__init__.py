"""The console in a real Chromium, driven through its own driver; skips where they are absent (`make test-face`)."""
