package specs

import "time"

// Tenant is a tenant's own settings.
type Tenant struct {
	Meta
	DefaultProfile Text
	Labels         map[string]string // spec.labels: tenant.labels in expressions
	Limits         TenantLimits
	Users          map[string]TenantUser
	Retention      Retention
	Redact         []Text // JSON pointers redacted in every journal payload
	Secrets        map[string]SecretRef
	// Price is the cost that a tool of unknown price is charged, in the smallest money unit; default 100.
	UnknownCost *int64
}

// TenantUser is a person of the tenant, for stores without an identity provider.
type TenantUser struct {
	Roles       []Role
	DisplayName string
	Labels      map[string]string
}

// TenantLimits bounds what a tenant can use.
type TenantLimits struct {
	MaxRuns        int64
	CallsPerSecond int64
	StorageBytes   int64
	MaxArgsBytes   int64 // default 1 MiB
	MaxResultBytes int64 // default 16 MiB; results above 8 KiB go by reference
}

// Retention says how long closed runs stay.
type Retention struct {
	Runs time.Duration
}
