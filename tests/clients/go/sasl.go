// Logins with SASL.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func mechanism(name, user, password string, token bool) (sasl.Mechanism, error) {
	switch name {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password, IsToken: token}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password, IsToken: token}.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		return oauth.Auth{Token: password}.AsMechanism(), nil
	}
	return nil, fmt.Errorf("unknown mechanism %s", name)
}

// login [MECHANISM USER PASSWORD [token]]: tells the number of brokers.
func login(ctx context.Context, bootstrap string, arguments []string) (any, error) {
	options := []kgo.Opt{kgo.RetryTimeout(5 * time.Second)}
	if len(arguments) > 0 {
		chosen, err := mechanism(arguments[0], arguments[1], arguments[2], len(arguments) > 3)
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.SASL(chosen))
	}
	client, err := connect(bootstrap, options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found, err := kadm.NewClient(client).ListBrokers(ctx)
	if err != nil {
		return nil, err
	}
	return len(found), nil
}
